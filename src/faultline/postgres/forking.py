"""Keeps a forked child from holding its parent's sessions open."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import psycopg

_servers: set[Any] = set()  # the addresses of the servers of this process's sessions


def remember_server(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    with (
        contextlib.suppress(OSError),  # the connection was reset: the next statement will fail
        socket.socket(fileno=os.dup(conn.fileno())) as duplicate,
    ):
        _servers.add(duplicate.getpeername())


def _leave_sessions_to_the_parent() -> None:
    """Replace the inherited sockets of the parent's sessions by /dev/null.

    A forked child would keep them open after the parent has died, and the server would believe that the
    worker is alive. With /dev/null under the same number nothing can be sent, not even the message that
    ends a session. The sockets are found by their peer, not from a list of sessions, because a session
    that is being opened is on no list.
    """
    if not _servers:
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):  # not a socket, not connected, or closed meanwhile
            with socket.socket(fileno=os.dup(number)) as duplicate:
                leads_to_server = duplicate.getpeername() in _servers
            if leads_to_server:
                os.dup2(nowhere, number)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_sessions_to_the_parent)
