"""A session for a thread that runs statements and waits for notifications."""

from __future__ import annotations

import contextlib
import selectors
import socket
from typing import LiteralString, TypeVar

import psycopg

from faultline.postgres.answer_limit import ANSWER_SECONDS
from faultline.postgres.sessions import open_session, run
from faultline.statements.statement import Statement

T = TypeVar("T")


class ListeningSession:
    """Listens on one channel; behind a pooler, where LISTEN does not work, it is deaf.

    Its writes are hints: they are committed without waiting for the disk.
    """

    def __init__(self, url: str, *, channel: LiteralString, application_name: str) -> None:
        self._payloads: list[str] = []
        self._conn, session = open_session(
            url,
            application_name=application_name,
            answer_seconds=ANSWER_SECONDS,
            needs_primary=True,
        )
        self.is_deaf = session.is_pooled
        if self.is_deaf:
            return
        try:
            self._conn.add_notify_handler(lambda sent: self._payloads.append(sent.payload))
            self._conn.execute(f"SET synchronous_commit = off; LISTEN {channel}")
        except BaseException:
            self._conn.close()
            raise

    def run(self, statement: Statement[T]) -> T:
        return run(self._conn, statement)

    def wait(self, wakeup: socket.socket, seconds: float) -> list[str]:
        """Wait for a notification, a byte from `wakeup`, or the time; return the payloads."""
        if not self._payloads:
            with selectors.DefaultSelector() as selector:
                selector.register(wakeup, selectors.EVENT_READ)
                if not self.is_deaf:
                    selector.register(self._conn.fileno(), selectors.EVENT_READ)
                ready = {key.fileobj for key, _ in selector.select(max(seconds, 0.0))}
            if wakeup in ready:
                with contextlib.suppress(BlockingIOError):
                    wakeup.recv(4096)
                ready.discard(wakeup)
            if ready:
                self._receive()
        payloads, self._payloads = self._payloads, []
        return payloads

    def _receive(self) -> None:
        """Read the notifications that have arrived; raises if the session has ended."""
        pgconn = self._conn.pgconn
        pgconn.consume_input()
        while sent := pgconn.notifies():
            self._payloads.append(sent.extra.decode())

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._conn.close()
