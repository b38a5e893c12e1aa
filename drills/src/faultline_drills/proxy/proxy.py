"""The proxy: stands between clients and one PostgreSQL, numbers what clients send, and does as told.

It runs in a thread of its own. Every method may be called from any other thread, callbacks included.
It answers a request for TLS with no; and since its own kernel acknowledges what clients send, keepalives
and `tcp_user_timeout` see a healthy network whatever it does.
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
from faultline_drills.proxy.route import Ends, Route, reset
from faultline_drills.proxy.trap import Action, Callback, Match, Trap
from faultline_drills.proxy.weather import Direction, Weather
from faultline_drills.proxy.wire import Kind, Message, Part

T = TypeVar("T")

_BOUND_SECONDS = 60.0
_LONGEST_LOG = 100_000
_ROUNDS_TO_ACCEPT = 10  # of the event loop: from the kernel's queue to `_accept` takes four
_STARTUP_PACKETS = 3  # at most: asking for GSS encryption, for TLS, and the startup itself


class Proxy:
    def __init__(self, url: str) -> None:
        self._target: Mapping[str, Any] = conninfo.conninfo_to_dict(url)
        self._exempt: dict[str, Mapping[str, Any]] = {}  # applications that are led elsewhere
        self._weather = Weather()
        self._traps: list[Trap] = []
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log: list[Message] = []
        self._numbered = self._connected = 0
        self._began = time.monotonic()
        self.failures: list[BaseException] = []  # of callbacks
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._await(asyncio.start_server(self._accept, "127.0.0.1", 0))
        port = self._server.sockets[0].getsockname()[1]
        here: dict[str, Any] = {"host": "127.0.0.1", "port": port}
        if "hostaddr" in self._target:
            here["hostaddr"] = "127.0.0.1"
        self.url = conninfo.make_conninfo(url, **here)

    # ── what it has seen ─────────────────────────────────────────────────────────────────────────

    @property
    def log(self) -> tuple[Message, ...]:
        """What clients sent, oldest first; of very many the latest."""
        return tuple(self._log)

    @property
    def message_count(self) -> int:
        return self._numbered

    @property
    def routes(self) -> tuple[Route, ...]:
        """The connections that are open."""
        return tuple(self._routes.values())

    def route_of(
        self,
        *,
        connection: int | None = None,
        backend_pid: int | None = None,
        port_at_server: int | None = None,
    ) -> Route:
        """The open connection that the server knows by this backend, or by its client's port."""
        (found,) = [
            route
            for route in self.routes
            if connection in (None, route.number)
            and backend_pid in (None, route.backend_pid)
            and port_at_server in (None, route.port_at_server)
        ]
        return found

    # ── what it can be told ──────────────────────────────────────────────────────────────────────

    def on(self, match: Match, action: Action, callback: Callback | None = None) -> Trap:
        """Act once, at the message that `match` means. Counting begins now."""
        trap = Trap(match, action, callback)
        self._do(lambda: self._traps.append(trap))
        return trap

    def release(self, trap: Trap) -> None:
        """Let the message go that the trap holds."""
        self._do(trap.let_go)

    def remove(self, trap: Trap) -> None:
        """Forget it, if it has not sprung; let go what it holds."""

        def forget() -> None:
            trap.let_go()
            self._traps = [other for other in self._traps if other is not trap]

        self._do(forget)

    def delay(
        self,
        seconds: float,
        *,
        jitter: float = 0.0,
        seed: int = 0,
        direction: Direction = Direction.BOTH,
        application: str | None = None,
    ) -> None:
        """What is sent from now on takes `seconds`, give or take `jitter`, each way."""
        self._do(
            lambda: self._weather.slow_down(
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
        """Nothing arrives any more, nor do the ends of connections, until `flow`. What is sent is not
        lost for ever: TCP would send it again, and so it arrives when the way is clear."""
        self._do(lambda: self._weather.blackhole(direction, application))

    def refuse_connections(self) -> None:
        """New connections are reset at once, until `flow`."""

        def refuse() -> None:
            self._weather.refuses_connections = True

        self._do(refuse)

    def flow(self) -> None:
        """Fair weather: no holes, no delays, nothing held. What was cut or swallowed stays so."""

        def clear_up() -> None:
            self._weather.clear_up()
            for trap in self._traps:
                if trap.message is not None:
                    trap.let_go()

        self._do(clear_up)

    def aim(self, url: str, *, but_not: str | None = None) -> None:
        """New connections lead to this server; open ones stay where they are.

        Those of the application `but_not` still lead to the server before.
        """
        target = conninfo.conninfo_to_dict(url)

        def turn() -> None:
            self._exempt = {} if but_not is None else {but_not: self._target}
            self._target = target

        self._do(turn)

    def reset_all(self, *, application: str | None = None) -> int:
        """RST to both ends of every connection; how many there were."""
        mine = [route for route in self.routes if application in (None, route.application)]
        for route in mine:
            route.reset()
        return len(mine)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_BOUND_SECONDS)
        self._loop.close()

    # ── its own thread ───────────────────────────────────────────────────────────────────────────

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
        # A connection that asyncio is just letting in is lost, and never closed, when its server is closed.
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        for _ in range(_ROUNDS_TO_ACCEPT):
            await asyncio.sleep(0)
        self._server.close()
        for route in self.routes:
            route.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()
        await asyncio.sleep(0)  # transports are closed in the next round

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._tasks.add(task)
        try:
            await self._serve((reader, writer))
        except asyncio.CancelledError:
            writer.transport.abort()  # one that does not read would keep us from closing
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away before there was anything to carry, or the server is away
        except Exception as error:
            self.failures.append(error)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _serve(self, client: Ends) -> None:
        if self._turns_away(client):
            return
        packet, startup = await self._greet(client)
        application = startup.parameters.get("application_name", "")
        await self._weather.passable(application, Direction.TO_SERVER)
        server = await self._dial(self._exempt.get(application, self._target))
        if self._turns_away(client, server):  # since then: `reset_all` could not know of this one
            return
        self._connected += 1
        number = self._connected
        route = Route(
            number,
            application,
            client,
            server,
            self._weather,
            on_message=self._record,
            trap_for=self._trap_for,
            do=self._do,
        )
        self._routes[number] = route
        try:
            if startup.code == wire.CANCEL_REQUEST:
                await route.run(Part(packet, Kind.CANCEL))
            else:
                await route.run(Part(packet, Kind.STARTUP, is_answered=True))
        finally:
            server[1].transport.abort()
            del self._routes[number]

    def _turns_away(self, *ends: Ends) -> bool:
        if self._weather.refuses_connections:
            for _, writer in ends:
                reset(writer)
        return self._weather.refuses_connections

    async def _greet(self, client: Ends) -> tuple[bytes, wire.Startup]:
        reader, writer = client
        for _ in range(_STARTUP_PACKETS):
            head = await reader.readexactly(4)
            (length,) = struct.unpack("!i", head)
            if not 8 <= length <= wire.MAX_STARTUP_BYTES:
                raise ConnectionAbortedError("not a startup packet of PostgreSQL's")
            body = await reader.readexactly(length - 4)
            startup = wire.read_startup(body)
            if startup.code not in (wire.SSL_REQUEST, wire.GSSENC_REQUEST):
                return head + body, startup
            for direction in (Direction.TO_SERVER, Direction.TO_CLIENT):
                await self._weather.passable("", direction)
            writer.write(b"N")
        raise ConnectionAbortedError("only requests for encryption")

    async def _dial(self, target: Mapping[str, Any]) -> Ends:
        host = str(target.get("hostaddr") or target.get("host") or "127.0.0.1")
        port = int(target.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    def _record(self, route: Route, part: Part) -> Message:
        assert part.kind is not None  # noqa: S101 - others are not numbered
        self._numbered += 1
        message = Message(
            number=self._numbered,
            connection=route.number,
            nth=route.messages,
            kind=part.kind,
            sql=part.sql,
            application=route.application,
            at=time.monotonic() - self._began,
        )
        self._log.append(message)
        if len(self._log) > _LONGEST_LOG:
            del self._log[: _LONGEST_LOG // 2]
        return message

    def _trap_for(self, message: Message) -> Trap | None:
        """The first that springs at it; those that were set later do not see it."""
        for trap in self._traps:
            if trap.springs_at(message):
                return trap
        return None


@contextlib.contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    """A proxy in front of the server at `url`; what its callbacks raised is raised at the end."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
    if proxy.failures:
        raise proxy.failures[0]
