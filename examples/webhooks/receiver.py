"""A receiver of webhooks on loopback, which acts once on each idempotency key."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Counts the calls and the effects of each event.

    It answers the first call of "busy" with 429, and each call of "gone" with 410. The first call of "slow"
    gets its answer when `may_answer` is set.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.calls: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.was_called, self.may_answer = threading.Event(), threading.Event()
        self._keys: set[str] = set()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def receive(self, event: str, key: str) -> int:
        """Act on an event unless its key is known; returns the HTTP status."""
        with self._lock:
            self.calls[event] += 1
            is_first = self.calls[event] == 1
            if event == "gone":
                return 410
            if event == "busy" and is_first:
                return 429
            if key not in self._keys:
                self._keys.add(key)
                self.effects[event] += 1
        if event == "slow" and is_first:
            self.was_called.set()
            self.may_answer.wait(60)
        return 200


class _Request(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["event"]
        status = self.server.receive(event, self.headers["Idempotency-Key"])
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """The example prints what matters itself."""
