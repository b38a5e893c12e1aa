"""One client connection through the proxy, and its faults."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from typing import assert_never

from faultline_drills.proxy.conditions import Direction, NetworkConditions
from faultline_drills.proxy.interception import Action, Interception
from faultline_drills.proxy.pipe import Pipe
from faultline_drills.proxy.wire import ClientPart, ClientStream, Message, ServerStream

_CHUNK_BYTES = 65536
_NO_LINGER = struct.pack("ii", 1, 0)  # closing sends RST and discards unsent data

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ProxiedConnection:
    """Runs in the proxy's thread; its fault methods may be called from any thread."""

    def __init__(
        self,
        number: int,
        application: str,
        client: Streams,
        server: Streams,
        conditions: NetworkConditions,
        *,
        on_message: Callable[[ProxiedConnection, ClientPart], Message],
        interception_for: Callable[[Message], Interception | None],
        do: Callable[[Callable[[], None]], None],
    ) -> None:
        self.number = number
        self.application = application
        self.backend_pid: int | None = None
        self.transaction_status: str | None = None  # the server's latest: I, T or E
        self.messages = 0
        self.port_at_server = _local_port(server[1])
        self._client, self._server = client, server
        self._to_server = Pipe(server[1], conditions, Direction.TO_SERVER, application)
        self._to_client = Pipe(client[1], conditions, Direction.TO_CLIENT, application)
        self._on_message, self._interception_for, self._do = on_message, interception_for, do
        self._asked = 0  # forwarded messages that the server replies to
        self._replied = 0  # complete replies
        self._dropping: dict[int, Interception] = {}  # by the number of the reply to drop
        self._drops_replies = self._is_client_cut = self._is_server_cut = False

    # ── faults ───────────────────────────────────────────────────────────────────────────────────

    def drop_replies(self) -> None:
        """Forward nothing more from the server, not even the end of the connection."""
        self._do(self._drop_replies)

    def cut_client(self) -> None:
        """Reset the client's side; the server is not told."""
        self._do(self._cut_client)

    def cut_server(self) -> None:
        """Reset the server's side; the client is not told."""
        self._do(self._cut_server)

    def reset(self) -> None:
        """Reset both sides."""
        self._do(self._reset)

    def close(self) -> None:
        self._do(self._close)

    def _drop_replies(self) -> None:
        self._drops_replies = True

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

    # ── forwarding ───────────────────────────────────────────────────────────────────────────────

    async def run(self, startup: ClientPart) -> None:
        """Forward until both sides are closed, or an error is raised."""
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

    async def _read_client(self, startup: ClientPart) -> None:
        stream = ClientStream()
        with contextlib.suppress(ConnectionError):
            await self._process([startup])
            while data := await self._client[0].read(_CHUNK_BYTES):
                await self._process(stream.feed(data))
        if not self._is_client_cut:
            await self._to_server.send(stream.rest)
            await self._to_server.send(None)

    async def _read_server(self) -> None:
        stream = ServerStream()
        with contextlib.suppress(ConnectionError):
            while data := await self._server[0].read(_CHUNK_BYTES):
                for reply in stream.feed(data):
                    self.backend_pid = reply.backend_pid or self.backend_pid
                    self.transaction_status = reply.transaction_status or self.transaction_status
                    interception = self._dropping.get(self._replied + 1)
                    if interception is None and not self._drops_replies:
                        await self._to_client.send(reply.data)
                    if reply.is_complete:
                        self._replied += 1
                        await self._reply_dropped(interception)
        for interception in tuple(self._dropping.values()):
            await self._reply_dropped(interception)  # the server closed instead of replying
        if not (self._is_server_cut or self._drops_replies):
            await self._to_client.send(None)

    async def _reply_dropped(self, interception: Interception | None) -> None:
        """Drop all later replies too: TCP delivers no byte after one that was lost."""
        if interception is not None:
            self._drop_replies()
            self._dropping = {n: i for n, i in self._dropping.items() if i is not interception}
            await interception.call()

    async def _process(self, parts: Iterable[ClientPart]) -> None:
        for part in parts:
            if self._is_server_cut:
                return
            interception = None
            if part.kind is not None:
                self.messages += 1
                interception = self._interception_for(self._on_message(self, part))
            if interception is None:
                await self._forward(part)
            else:
                await self._intercept(interception, part)

    async def _forward(self, part: ClientPart) -> None:
        self._asked += part.is_answered
        await self._to_server.send(part.data)

    async def _intercept(self, interception: Interception, part: ClientPart) -> None:
        match interception.action:
            case Action.HOLD:
                await interception.call()
                await interception.wait_for_release()
                await self._forward(part)
            case Action.DROP:
                await interception.call()
                self._close()
            case Action.FORWARD:
                await self._forward_then(interception, part, lambda: None)
            case Action.RESET:
                await self._forward_then(interception, part, self._reset)
            case Action.CUT_CLIENT:
                await self._forward_then(interception, part, self._cut_client)
            case Action.CUT_SERVER:
                await interception.call()
                self._cut_server()
            case Action.DROP_REPLY:
                if not part.is_answered:  # the end of the connection counts as its reply
                    self._drop_replies()
                number = self._asked + 1 if part.is_answered else self._replied + 1
                self._dropping[number] = interception
                await self._forward(part)
            case _:
                assert_never(interception.action)

    async def _forward_then(
        self, interception: Interception, part: ClientPart, act: Callable[[], None]
    ) -> None:
        """Forward, run the callback, act; no reply reaches the client before that."""
        self._to_client.pause()
        await self._forward(part)
        await self._to_server.delivered()
        await interception.call()
        act()
        self._to_client.resume()


def _local_port(writer: asyncio.StreamWriter) -> int:
    """The port that the server sees as its client's; 0 for a Unix socket."""
    name = writer.get_extra_info("sockname")
    return int(name[1]) if isinstance(name, tuple) else 0


def reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection with RST."""
    end: socket.socket | None = writer.get_extra_info("socket")
    if end is not None:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()
