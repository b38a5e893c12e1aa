"""Keeps a forked child from holding its parent's sessions open."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import psycopg

_servers: set[Any] = set()  # the addresses that we have sessions with


def remember_server(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    with (
        contextlib.suppress(OSError),  # reset by now: the next statement will say so
        socket.socket(fileno=os.dup(conn.fileno())) as duplicate,
    ):
        _servers.add(duplicate.getpeername())


def _leave_sessions_to_the_parent() -> None:
    """A forked child inherits our sockets, and would keep them open after the parent has died: the
    server would believe the worker alive. Each is replaced by /dev/null under its own number, so that
    nothing, not even a goodbye to the server, can be sent on it.

    Found by where they lead, and not from a list of sessions: one that is being opened is on no list.
    """
    if not _servers:
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):  # not a socket, or not connected, or closed by now
            with socket.socket(fileno=os.dup(number)) as duplicate:
                leads_to_server = duplicate.getpeername() in _servers
            if leads_to_server:
                os.dup2(nowhere, number)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_sessions_to_the_parent)
