"""A store outside of PostgreSQL that compares fencing tokens, for drills.

It remembers the highest token per job and the process that used it, and refuses a lower token, or the
same one from another process. Faultline cannot fence a system that it does not own, but such a store can
refuse a stale worker's call by itself. Calls are JSON objects, one per line, each with one line in reply.
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
        self._server = _make_server(self._accept)
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

    def _accept(self, job: str, token: int, key: str, caller: str) -> bool:
        with self._lock:
            highest, holder = self._highest.get(job, (0, ""))
            accepted = token > highest or (token, caller) == (highest, holder)
            self._calls.append(
                ExternalCall(len(self._calls) + 1, job, token, key, accepted, caller)
            )
            if accepted:
                self._highest[job] = token, caller
            return accepted


def _make_server(accept: Any) -> socketserver.ThreadingTCPServer:
    class StoreHandler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError):  # the caller may be killed
                for line in self.rfile:
                    call = json.loads(line)
                    answer = {"accepted": accept(**call)}
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

    class StoreServer(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    return StoreServer(("127.0.0.1", 0), StoreHandler)


async def call_external_store(address: str, *, job: str, token: int, key: str) -> bool:
    """Call the store from a handler; whether it accepted the call."""
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
