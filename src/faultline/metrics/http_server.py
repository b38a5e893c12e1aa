"""A small HTTP server with a bound on everything: connections, time, header size, file descriptors.

It runs beside jobs, in the same process. A thread and a descriptor for each connection would let any
client that reaches the port take the descriptors that handlers need. One thread serves at most
`connections` of them here. When all are taken, the connection that has waited longest for its client's
request makes room, so that clients that send theirs at once are answered even while others only connect.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

CONNECTIONS = 8
READ_SECONDS = 5.0
WRITE_SECONDS = 10.0
HEADER_BYTES = 16 * 1024
# How long a connection without a whole request is kept when others wait for its place.
GRACE_SECONDS = 0.5
# What is left to the rest of the process, when descriptors run short.
SPARE_FILES = 32
_BACKLOG = 128
_ACCEPTS_AT_ONCE = 16
_ACCEPT_PAUSE_SECONDS = 0.5
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]  # by lower-case name


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain; charset=utf-8"),)


Respond = Callable[[Request], Response]


@dataclass(slots=True)
class _Line:
    """One client's connection."""

    sock: socket.socket
    since: float
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    unsent: memoryview | None = None  # the answer, from when the request was read


class HttpServer:
    """Serves from a thread of its own, from when it is entered until it is left."""

    def __init__(
        self,
        listener: socket.socket,
        respond: Respond,
        *,
        connections: int = CONNECTIONS,
        read_seconds: float = READ_SECONDS,
        header_bytes: int = HEADER_BYTES,
    ) -> None:
        self._listener, self._respond = listener, respond
        self._connections, self._read_seconds = connections, read_seconds
        self._header_bytes = header_bytes
        self._lines: dict[int, _Line] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._is_stopping = False
        self._accepts_again_at: float | None = None  # None: it accepts
        self._thread = threading.Thread(target=self._run, name="faultline-metrics", daemon=True)
        listener.setblocking(False)
        if hasattr(os, "register_at_fork"):
            # A child that a handler forks would keep the port after this process has died.
            os.register_at_fork(after_in_child=self._close_files)

    def __enter__(self) -> HttpServer:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")
        self._thread.join(5.0)
        self._close_files()

    def _close_files(self) -> None:
        with contextlib.suppress(RuntimeError):  # a fork may have come in the middle of a change
            for line in list(self._lines.values()):
                line.sock.close()
        for held in (self._listener, self._woken, self._waker, self._selector):
            held.close()

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._is_stopping:
            for key, _ in self._selector.select(self._next_deadline()):
                if key.fileobj is self._listener:
                    self._accept()
                elif (line := self._lines.get(key.fd)) is not None:
                    self._serve(line)
            self._drop_overdue()

    def _next_deadline(self) -> float | None:
        ends = [line.deadline for line in self._lines.values()]
        if self._accepts_again_at is not None:
            ends.append(self._accepts_again_at)
        return max(min(ends) - time.monotonic(), 0.0) if ends else None

    def _drop_overdue(self) -> None:
        now = time.monotonic()
        for line in [line for line in self._lines.values() if line.deadline <= now]:
            if line.unsent is None:
                _say_no(line.sock, 408, "the request did not arrive in time\n")
            self._drop(line)
        if self._accepts_again_at is not None and self._accepts_again_at <= now:
            self._accepts_again_at = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    return
                # Trying at once would spin: the connection stays in the kernel's queue meanwhile.
                self._selector.unregister(self._listener)
                self._accepts_again_at = time.monotonic() + _ACCEPT_PAUSE_SECONDS
                return
            sock.setblocking(False)
            if _is_short_of_files(sock.fileno()) or not self._has_room():
                _say_no(sock, 503, "too many connections; try again\n", (("Retry-After", "1"),))
                sock.close()
                continue
            now = time.monotonic()
            line = _Line(sock, now, now + self._read_seconds)
            self._lines[sock.fileno()] = line
            self._selector.register(sock, selectors.EVENT_READ)

    def _has_room(self) -> bool:
        if len(self._lines) < self._connections:
            return True
        waiting = [line for line in self._lines.values() if line.unsent is None]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda line: line.since)
        if time.monotonic() - oldest.since < GRACE_SECONDS:
            return False
        self._drop(oldest)
        return True

    # ── one connection ───────────────────────────────────────────────────────────────────────────

    def _serve(self, line: _Line) -> None:
        try:
            if line.unsent is None:
                self._read(line)
            if line.unsent is not None:
                self._write(line)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(line)

    def _read(self, line: _Line) -> None:
        chunk = line.sock.recv(4096)
        if not chunk:
            self._drop(line)
            return
        line.received += chunk
        head, end, _ = bytes(line.received).partition(b"\r\n\r\n")
        if end:
            self._answer(line, self._response_to(head))
        elif len(line.received) > self._header_bytes:
            self._answer(line, Response(431, b"the headers are too long\n"))

    def _response_to(self, head: bytes) -> Response:
        request = _parsed(head)
        if request is None:
            return Response(400, b"this is no HTTP request\n")
        try:
            response = self._respond(request)
        except Exception:
            return Response(500, b"the metrics cannot be read\n")
        return response if request.method != "HEAD" else response._replace(body=b"")

    def _answer(self, line: _Line, response: Response) -> None:
        line.unsent = memoryview(_encoded(response))
        line.deadline = time.monotonic() + WRITE_SECONDS
        self._selector.modify(line.sock, selectors.EVENT_WRITE)

    def _write(self, line: _Line) -> None:
        assert line.unsent is not None  # noqa: S101 - then there is nothing to write
        line.unsent = line.unsent[line.sock.send(line.unsent) :]
        if not line.unsent:
            with contextlib.suppress(OSError):
                line.sock.shutdown(socket.SHUT_WR)
            self._drop(line)

    def _drop(self, line: _Line) -> None:
        if self._lines.pop(line.sock.fileno(), None) is not None:
            self._selector.unregister(line.sock)
            line.sock.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError or OverflowError where the address cannot be had."""
    [(family, _, _, _, address), *_] = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def _parsed(head: bytes) -> Request | None:
    first, *rest = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return None
    path, _, query = parts[1].partition("?")
    named = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, colon, value in named if colon}
    return Request(parts[0], path, query, headers)


def _encoded(response: Response) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {_PHRASES.get(response.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    lines += [f"Content-Length: {len(response.body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + response.body


def _say_no(
    sock: socket.socket, status: int, why: str, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    """Without waiting: a client that takes nothing is not told."""
    plain = Response(status, why.encode(), (("Content-Type", "text/plain"), *headers))
    with contextlib.suppress(OSError):
        sock.send(_encoded(plain))
        sock.shutdown(socket.SHUT_WR)


def _is_short_of_files(newest: int) -> bool:
    """Descriptors are given out from the lowest on: a high number says how many are in use."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return False
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and newest >= soft - SPARE_FILES
