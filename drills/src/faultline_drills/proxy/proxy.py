"""A proxy in front of PostgreSQL: numbers client messages, and injects faults.

It runs in a thread of its own; every method may be called from any other thread, also by a callback.
It refuses TLS. Since its own kernel acknowledges what clients send, keepalives and `tcp_user_timeout`
see a healthy network whatever fault it injects.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from psycopg import conninfo

from faultline_drills.proxy import wire
from faultline_drills.proxy.conditions import Direction, NetworkConditions
from faultline_drills.proxy.connection import ProxiedConnection, Streams, reset
from faultline_drills.proxy.interception import Action, Callback, Interception, Match
from faultline_drills.proxy.wire import ClientPart, Message, MessageKind

T = TypeVar("T")

_BOUND_SECONDS = 60.0
_MOST_LOGGED = 100_000
_ROUNDS_TO_ACCEPT = 10  # event loop iterations; accepting takes four from the kernel's queue
_STARTUP_PACKETS = 3  # at most: a GSS request, a TLS request, and the startup packet


class Proxy:
    def __init__(self, url: str) -> None:
        self._target: Mapping[str, Any] = conninfo.conninfo_to_dict(url)
        self._exempt: dict[
            str, Mapping[str, Any]
        ] = {}  # by application: servers other than the target
        self._conditions = NetworkConditions()
        self._interceptions: list[Interception] = []
        self._connections: dict[int, ProxiedConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log: list[Message] = []
        self._numbered = self._connected = 0
        self._began = time.monotonic()
        self.failures: list[BaseException] = []  # raised by callbacks
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._await(asyncio.start_server(self._accept, "127.0.0.1", 0))
        port = self._server.sockets[0].getsockname()[1]
        here: dict[str, Any] = {"host": "127.0.0.1", "port": port}
        if "hostaddr" in self._target:
            here["hostaddr"] = "127.0.0.1"
        self.url = conninfo.make_conninfo(url, **here)

    # ── observed messages and connections ────────────────────────────────────────────────────────

    @property
    def log(self) -> tuple[Message, ...]:
        """Client messages, oldest first; only the latest of very many."""
        return tuple(self._log)

    @property
    def message_count(self) -> int:
        return self._numbered

    @property
    def connections(self) -> tuple[ProxiedConnection, ...]:
        """The open connections."""
        return tuple(self._connections.values())

    def connection_of(
        self,
        *,
        connection: int | None = None,
        backend_pid: int | None = None,
        port_at_server: int | None = None,
    ) -> ProxiedConnection:
        """The one open connection with this number, backend process or client port."""
        (found,) = [
            each
            for each in self.connections
            if connection in (None, each.number)
            and backend_pid in (None, each.backend_pid)
            and port_at_server in (None, each.port_at_server)
        ]
        return found

    # ── faults ───────────────────────────────────────────────────────────────────────────────────

    def on(self, match: Match, action: Action, callback: Callback | None = None) -> Interception:
        """Intercept one message, the `nth` from now on that fits `match`."""
        interception = Interception(match, action, callback)
        self._do(lambda: self._interceptions.append(interception))
        return interception

    def release(self, interception: Interception) -> None:
        """Forward the message that is held."""
        self._do(interception.release)

    def remove(self, interception: Interception) -> None:
        """Cancel an interception; a message that it holds is forwarded."""

        def cancel() -> None:
            interception.release()
            self._interceptions = [
                other for other in self._interceptions if other is not interception
            ]

        self._do(cancel)

    def delay(
        self,
        seconds: float,
        *,
        jitter: float = 0.0,
        seed: int = 0,
        direction: Direction = Direction.BOTH,
        application: str | None = None,
    ) -> None:
        """Delay everything sent from now on by `seconds` plus or minus `jitter`, each way."""
        self._do(
            lambda: self._conditions.delay(
                seconds,
                jitter_seconds=jitter,
                seed=seed,
                direction=direction,
                application=application,
            )
        )

    def blackhole(
        self, *, direction: Direction = Direction.BOTH, application: str | None = None
    ) -> None:
        """Deliver nothing, not even the end of a connection, until `clear_faults`.

        What is sent meanwhile arrives afterwards, as TCP would send it again.
        """
        self._do(lambda: self._conditions.blackhole(direction, application))

    def refuse_connections(self) -> None:
        """Reset new connections at once, until `clear_faults`."""

        def refuse() -> None:
            self._conditions.refuses_connections = True

        self._do(refuse)

    def clear_faults(self) -> None:
        """End blackholes, delays and holds. Cut connections and dropped replies stay lost."""

        def clear() -> None:
            self._conditions.clear()
            for interception in self._interceptions:
                if interception.message is not None:
                    interception.release()

        self._do(clear)

    def redirect(self, url: str, *, but_not: str | None = None) -> None:
        """Send new connections to this server; open ones stay where they are.

        Those of the application `but_not` still go to the server before.
        """
        target = conninfo.conninfo_to_dict(url)

        def change_target() -> None:
            self._exempt = {} if but_not is None else {but_not: self._target}
            self._target = target

        self._do(change_target)

    def reset_all(self, *, application: str | None = None) -> int:
        """Reset both ends of every connection; the number of connections."""
        found = [each for each in self.connections if application in (None, each.application)]
        for connection in found:
            connection.reset()
        return len(found)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_BOUND_SECONDS)
        self._loop.close()

    # ── the proxy's thread ───────────────────────────────────────────────────────────────────────

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_BOUND_SECONDS)

    def _do(self, act: Callable[[], None]) -> None:
        async def call() -> None:
            act()

        if threading.current_thread() is self._thread:
            act()
        elif self._thread.is_alive():
            self._await(call())

    async def _end(self) -> None:
        # Let connections be accepted first: asyncio loses, and never closes, one that it is accepting.
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        for _ in range(_ROUNDS_TO_ACCEPT):
            await asyncio.sleep(0)
        self._server.close()
        for connection in self.connections:
            connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()
        await asyncio.sleep(0)  # transports are closed in the next iteration

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._tasks.add(task)
        try:
            await self._serve((reader, writer))
        except asyncio.CancelledError:
            writer.transport.abort()  # closing would wait for a client that does not read
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client left before its startup packet, or the server is unavailable
        except Exception as error:
            self.failures.append(error)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _serve(self, client: Streams) -> None:
        if self._refuses(client):
            return
        packet, startup = await self._read_startup(client)
        application = startup.parameters.get("application_name", "")
        await self._conditions.wait_until_passable(application, Direction.TO_SERVER)
        server = await self._connect(self._exempt.get(application, self._target))
        if self._refuses(client, server):  # `reset_all` did not see this one yet
            return
        self._connected += 1
        number = self._connected
        connection = ProxiedConnection(
            number,
            application,
            client,
            server,
            self._conditions,
            on_message=self._record,
            interception_for=self._interception_for,
            do=self._do,
        )
        self._connections[number] = connection
        try:
            if startup.code == wire.CANCEL_REQUEST:
                await connection.run(ClientPart(packet, MessageKind.CANCEL))
            else:
                await connection.run(ClientPart(packet, MessageKind.STARTUP, is_answered=True))
        finally:
            server[1].transport.abort()
            del self._connections[number]

    def _refuses(self, *ends: Streams) -> bool:
        if self._conditions.refuses_connections:
            for _, writer in ends:
                reset(writer)
        return self._conditions.refuses_connections

    async def _read_startup(self, client: Streams) -> tuple[bytes, wire.Startup]:
        reader, writer = client
        for _ in range(_STARTUP_PACKETS):
            head = await reader.readexactly(4)
            (length,) = struct.unpack("!i", head)
            if not 8 <= length <= wire.MAX_STARTUP_BYTES:
                raise ConnectionAbortedError("not a PostgreSQL startup packet")
            body = await reader.readexactly(length - 4)
            startup = wire.read_startup(body)
            if startup.code not in (wire.SSL_REQUEST, wire.GSSENC_REQUEST):
                return head + body, startup
            for direction in (Direction.TO_SERVER, Direction.TO_CLIENT):
                await self._conditions.wait_until_passable("", direction)
            writer.write(b"N")
        raise ConnectionAbortedError("only requests for encryption, no startup packet")

    async def _connect(self, target: Mapping[str, Any]) -> Streams:
        host = str(target.get("hostaddr") or target.get("host") or "127.0.0.1")
        port = int(target.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    def _record(self, connection: ProxiedConnection, part: ClientPart) -> Message:
        assert part.kind is not None  # noqa: S101 - only messages have a kind
        self._numbered += 1
        message = Message(
            number=self._numbered,
            connection=connection.number,
            nth=connection.messages,
            kind=part.kind,
            sql=part.sql,
            application=connection.application,
            at=time.monotonic() - self._began,
        )
        self._log.append(message)
        if len(self._log) > _MOST_LOGGED:
            del self._log[: _MOST_LOGGED // 2]
        return message

    def _interception_for(self, message: Message) -> Interception | None:
        """The first that takes the message; later ones do not count it."""
        for interception in self._interceptions:
            if interception.takes(message):
                return interception
        return None


@contextlib.contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    """A proxy in front of the server at `url`; raises a callback's error at the end."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
    if proxy.failures:
        raise proxy.failures[0]
