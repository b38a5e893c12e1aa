"""One connection through the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from typing import assert_never

from faultline_drills.proxy.line import Line
from faultline_drills.proxy.trap import Action, Trap
from faultline_drills.proxy.weather import Direction, Weather
from faultline_drills.proxy.wire import ClientStream, Message, Part, ServerStream

_CHUNK_BYTES = 65536
_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends RST, and nothing that was still to be sent

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Route:
    """Lives in the proxy's thread; what can be done to it may be asked for from any."""

    def __init__(
        self,
        number: int,
        application: str,
        client: Ends,
        server: Ends,
        weather: Weather,
        *,
        on_message: Callable[[Route, Part], Message],
        trap_for: Callable[[Message], Trap | None],
        do: Callable[[Callable[[], None]], None],
    ) -> None:
        self.number = number
        self.application = application
        self.backend_pid: int | None = None
        self.transaction_status: str | None = None  # as the server last said: I, T or E
        self.messages = 0
        self.port_at_server = _port(server[1])
        self._client, self._server = client, server
        self._to_server = Line(server[1], weather, Direction.TO_SERVER, application)
        self._to_client = Line(client[1], weather, Direction.TO_CLIENT, application)
        self._on_message, self._trap_for, self._do = on_message, trap_for, do
        self._asked = 0  # messages sent on that the server answers
        self._answered = 0  # answers that it has completed
        self._swallowing: dict[int, Trap] = {}  # by the number of the answer that is to be lost
        self._is_deaf = self._is_client_cut = self._is_server_cut = False

    # ── what can be done to it ───────────────────────────────────────────────────────────────────

    def swallow_answers(self) -> None:
        """From now on nothing that the server says arrives, not even its goodbye."""
        self._do(self._go_deaf)

    def cut_client(self) -> None:
        """The client's connection is reset; the server is not told."""
        self._do(self._cut_client)

    def cut_server(self) -> None:
        """The server's connection is reset; the client is not told."""
        self._do(self._cut_server)

    def reset(self) -> None:
        """RST to both."""
        self._do(self._reset)

    def close(self) -> None:
        self._do(self._close)

    def _go_deaf(self) -> None:
        self._is_deaf = True

    def _cut_client(self) -> None:
        self._is_client_cut = True
        reset(self._client[1])

    def _cut_server(self) -> None:
        self._is_server_cut = True
        reset(self._server[1])

    def _reset(self) -> None:
        reset(self._client[1])
        reset(self._server[1])

    def _close(self) -> None:
        self._client[1].close()
        self._server[1].close()

    # ── what it does by itself ───────────────────────────────────────────────────────────────────

    async def run(self, startup: Part) -> None:
        """Until both ends are closed, or something raises."""
        pumps = [
            asyncio.create_task(pump)
            for pump in (
                self._read_client(startup),
                self._read_server(),
                self._to_server.deliver(),
                self._to_client.deliver(),
            )
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _read_client(self, startup: Part) -> None:
        stream = ClientStream()
        with contextlib.suppress(ConnectionError):
            await self._take([startup])
            while data := await self._client[0].read(_CHUNK_BYTES):
                await self._take(stream.feed(data))
        if not self._is_client_cut:
            await self._to_server.send(stream.rest)
            await self._to_server.send(None)

    async def _read_server(self) -> None:
        stream = ServerStream()
        with contextlib.suppress(ConnectionError):
            while data := await self._server[0].read(_CHUNK_BYTES):
                for answer in stream.feed(data):
                    self.backend_pid = answer.backend_pid or self.backend_pid
                    self.transaction_status = answer.transaction_status or self.transaction_status
                    trap = self._swallowing.get(self._answered + 1)
                    if trap is None and not self._is_deaf:
                        await self._to_client.send(answer.data)
                    if answer.is_complete:
                        self._answered += 1
                        await self._swallowed(trap)
        for trap in tuple(self._swallowing.values()):
            await self._swallowed(trap)  # it went away instead of answering
        if not (self._is_server_cut or self._is_deaf):
            await self._to_client.send(None)

    async def _swallowed(self, trap: Trap | None) -> None:
        """An answer that is lost cannot be followed by later ones that are not."""
        if trap is not None:
            self._go_deaf()
            self._swallowing = {n: t for n, t in self._swallowing.items() if t is not trap}
            await trap.call()

    async def _take(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if self._is_server_cut:
                return
            trap = None
            if part.kind is not None:
                self.messages += 1
                trap = self._trap_for(self._on_message(self, part))
            if trap is None:
                await self._forward(part)
            else:
                await self._spring(trap, part)

    async def _forward(self, part: Part) -> None:
        self._asked += part.is_answered
        await self._to_server.send(part.data)

    async def _spring(self, trap: Trap, part: Part) -> None:
        match trap.action:
            case Action.HOLD:
                await trap.call()
                await trap.wait_for_release()
                await self._forward(part)
            case Action.DROP:
                await trap.call()
                self._close()
            case Action.FORWARD:
                await self._forward_before(trap, part, lambda: None)
            case Action.RESET:
                await self._forward_before(trap, part, self._reset)
            case Action.CUT_CLIENT:
                await self._forward_before(trap, part, self._cut_client)
            case Action.CUT_SERVER:
                await trap.call()
                self._cut_server()
            case Action.SWALLOW_REPLY:
                if not part.is_answered:  # whatever comes is lost, and its end is the answer
                    self._go_deaf()
                number = self._asked + 1 if part.is_answered else self._answered + 1
                self._swallowing[number] = trap
                await self._forward(part)
            case _:
                assert_never(trap.action)

    async def _forward_before(self, trap: Trap, part: Part, act: Callable[[], None]) -> None:
        """Send it on, call, act; no answer reaches the client before all of that is done."""
        self._to_client.pause()
        await self._forward(part)
        await self._to_server.delivered()
        await trap.call()
        act()
        self._to_client.resume()


def _port(writer: asyncio.StreamWriter) -> int:
    """Ours, by which the server knows its client; 0 where there are no ports."""
    name = writer.get_extra_info("sockname")
    return int(name[1]) if isinstance(name, tuple) else 0


def reset(writer: asyncio.StreamWriter) -> None:
    """Close it with RST."""
    end: socket.socket | None = writer.get_extra_info("socket")
    if end is not None:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
