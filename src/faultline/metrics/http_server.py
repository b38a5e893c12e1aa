"""A small HTTP server with limits: connections, time, headers, descriptors.

It runs in the process that runs jobs. With a thread and a descriptor for each connection, any client that
reaches the port could use up the descriptors that handlers need. Here one thread serves at most `connections`
clients. At the limit it closes the connection that has waited longest for its request, so that clients that
send a request at once are served even while others only connect.
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
# How long a connection without a complete request is kept when others wait.
GRACE_SECONDS = 0.5
# Descriptors that are left to the rest of the process.
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


class MetricsRequest(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]  # by lower-case name


class MetricsResponse(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain; charset=utf-8"),)


Respond = Callable[[MetricsRequest], MetricsResponse]


@dataclass(slots=True)
class _Connection:
    """The connection of one client."""

    sock: socket.socket
    since: float
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    unsent: memoryview | None = None  # the response, once the request was read


class MetricsServer:
    """Serves in a thread of its own while the context is open."""

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
        self._open: dict[int, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._is_stopping = False
        self._accepts_again_at: float | None = None  # None: it accepts
        self._thread = threading.Thread(target=self._run, name="faultline-metrics", daemon=True)
        listener.setblocking(False)
        if hasattr(os, "register_at_fork"):
            # A child that a handler forks would keep the port open after this process has ended.
            os.register_at_fork(after_in_child=self._close_files)

    def __enter__(self) -> MetricsServer:
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
        with contextlib.suppress(RuntimeError):  # the fork may have happened during a change
            for connection in list(self._open.values()):
                connection.sock.close()
        for held in (self._listener, self._woken, self._waker, self._selector):
            held.close()

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._is_stopping:
            for key, _ in self._selector.select(self._next_deadline()):
                if key.fileobj is self._listener:
                    self._accept()
                elif (connection := self._open.get(key.fd)) is not None:
                    self._serve(connection)
            self._drop_overdue()

    def _next_deadline(self) -> float | None:
        ends = [connection.deadline for connection in self._open.values()]
        if self._accepts_again_at is not None:
            ends.append(self._accepts_again_at)
        return max(min(ends) - time.monotonic(), 0.0) if ends else None

    def _drop_overdue(self) -> None:
        now = time.monotonic()
        for connection in [
            connection for connection in self._open.values() if connection.deadline <= now
        ]:
            if connection.unsent is None:
                _refuse(connection.sock, 408, "the request did not arrive in time\n")
            self._drop(connection)
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
                # Retrying at once would spin. The connection waits in the kernel's queue.
                self._selector.unregister(self._listener)
                self._accepts_again_at = time.monotonic() + _ACCEPT_PAUSE_SECONDS
                return
            sock.setblocking(False)
            if _is_short_of_files(sock.fileno()) or not self._has_room():
                _refuse(sock, 503, "too many connections; try again\n", (("Retry-After", "1"),))
                sock.close()
                continue
            now = time.monotonic()
            connection = _Connection(sock, now, now + self._read_seconds)
            self._open[sock.fileno()] = connection
            self._selector.register(sock, selectors.EVENT_READ)

    def _has_room(self) -> bool:
        if len(self._open) < self._connections:
            return True
        waiting = [connection for connection in self._open.values() if connection.unsent is None]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda connection: connection.since)
        if time.monotonic() - oldest.since < GRACE_SECONDS:
            return False
        self._drop(oldest)
        return True

    # ── one connection ───────────────────────────────────────────────────────────────────────────

    def _serve(self, connection: _Connection) -> None:
        try:
            if connection.unsent is None:
                self._read(connection)
            if connection.unsent is not None:
                self._write(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)

    def _read(self, connection: _Connection) -> None:
        chunk = connection.sock.recv(4096)
        if not chunk:
            self._drop(connection)
            return
        connection.received += chunk
        head, end, _ = bytes(connection.received).partition(b"\r\n\r\n")
        if end:
            self._answer(connection, self._response_to(head))
        elif len(connection.received) > self._header_bytes:
            self._answer(connection, MetricsResponse(431, b"the headers are too long\n"))

    def _response_to(self, head: bytes) -> MetricsResponse:
        request = _parsed(head)
        if request is None:
            return MetricsResponse(400, b"this is not an HTTP request\n")
        try:
            response = self._respond(request)
        except Exception:
            return MetricsResponse(500, b"the metrics cannot be read\n")
        return response if request.method != "HEAD" else response._replace(body=b"")

    def _answer(self, connection: _Connection, response: MetricsResponse) -> None:
        connection.unsent = memoryview(_encoded(response))
        connection.deadline = time.monotonic() + WRITE_SECONDS
        self._selector.modify(connection.sock, selectors.EVENT_WRITE)

    def _write(self, connection: _Connection) -> None:
        assert connection.unsent is not None  # noqa: S101 - then there is nothing to write
        connection.unsent = connection.unsent[connection.sock.send(connection.unsent) :]
        if not connection.unsent:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if self._open.pop(connection.sock.fileno(), None) is not None:
            self._selector.unregister(connection.sock)
            connection.sock.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; OSError or OverflowError if the address is unavailable."""
    [(family, _, _, _, address), *_] = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def _parsed(head: bytes) -> MetricsRequest | None:
    first, *rest = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return None
    path, _, query = parts[1].partition("?")
    named = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, colon, value in named if colon}
    return MetricsRequest(parts[0], path, query, headers)


def _encoded(response: MetricsResponse) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {_PHRASES.get(response.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    lines += [f"Content-Length: {len(response.body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + response.body


def _refuse(
    sock: socket.socket, status: int, why: str, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    """Send without waiting: a client that does not read gets nothing."""
    plain = MetricsResponse(status, why.encode(), (("Content-Type", "text/plain"), *headers))
    with contextlib.suppress(OSError):
        sock.send(_encoded(plain))
        sock.shutdown(socket.SHUT_WR)


def _is_short_of_files(newest: int) -> bool:
    """Whether few descriptors are left: a new one gets the lowest free number."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return False
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and newest >= soft - SPARE_FILES
