"""A system outside of PostgreSQL, for drills: it remembers the highest token per job and who had it.

It refuses a lower one, and the same one from somebody else. Faultline cannot fence what it does not
own. An outside store that compares tokens can, and this one shows it: a late worker's call arrives,
and is turned away. One JSON object per line, one line back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socketserver
import threading
from typing import Any

from faultline_drills.recording.database_state import ExternalCall

ADDRESS_VARIABLE = "FAULTLINE_DRILL_SINK"


class ExternalStore:
    def __init__(self) -> None:
        self._calls: list[ExternalCall] = []
        self._highest: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()
        self._server = _make_server(self._take)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    @property
    def calls(self) -> tuple[ExternalCall, ...]:
        with self._lock:
            return tuple(self._calls)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, job: str, token: int, key: str, caller: str) -> bool:
        with self._lock:
            highest, holder = self._highest.get(job, (0, ""))
            accepted = token > highest or (token, caller) == (highest, holder)
            self._calls.append(
                ExternalCall(len(self._calls) + 1, job, token, key, accepted, caller)
            )
            if accepted:
                self._highest[job] = token, caller
            return accepted


def _make_server(take: Any) -> socketserver.ThreadingTCPServer:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError):  # a caller that dies in the middle
                for line in self.rfile:
                    call = json.loads(line)
                    answer = {"accepted": take(**call)}
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    return Server(("127.0.0.1", 0), Handler)


async def call_external_store(address: str, *, job: str, token: int, key: str) -> bool:
    """What a handler does: whether the outside took the call."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        call = {"job": job, "token": token, "key": key, "caller": str(os.getpid())}
        writer.write(json.dumps(call).encode() + b"\n")
        await writer.drain()
        return bool(json.loads(await reader.readline())["accepted"])
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
