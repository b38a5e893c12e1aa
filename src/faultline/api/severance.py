"""Severance: ending a session from outside, while somebody waits in it."""

from __future__ import annotations

import contextlib
import os
import socket

import psycopg

from faultline.database import AsyncConnection

SEVERED_SECONDS = 0.5  # by then whoever waited has noticed


def sever(conn: AsyncConnection) -> None:
    """Shut its socket down, so that whoever waits for an answer stops waiting. Cancelling them instead
    would make the driver ask the server to cancel, and wait for a server that may be out of reach."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(conn.fileno())) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)
