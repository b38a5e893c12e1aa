"""One direction of a proxied connection: a FIFO with delays and interruptions."""

from __future__ import annotations

import asyncio
import contextlib

from faultline_drills.proxy.conditions import Direction, NetworkConditions

_MOST_CHUNKS = 256  # in transit; then the sender has to wait


class Pipe:
    def __init__(
        self,
        destination: asyncio.StreamWriter,
        conditions: NetworkConditions,
        direction: Direction,
        application: str,
    ) -> None:
        self._destination = destination
        self._conditions = conditions
        self._direction = direction
        self._application = application
        self._in_transit: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_MOST_CHUNKS)
        self._last_due = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def pause(self) -> None:
        """Deliver nothing until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def send(self, data: bytes | None) -> None:
        """Queue bytes, or None for the end of the connection, which is delayed as well."""
        loop = asyncio.get_running_loop()
        wait = self._conditions.delay_seconds(self._application, self._direction)
        self._last_due = max(self._last_due, loop.time() + wait)
        await self._in_transit.put((self._last_due, data))

    async def delivered(self) -> None:
        """Wait until everything sent so far has been delivered."""
        await self._in_transit.join()

    async def deliver(self) -> None:
        """Deliver in order, until the end of the connection has been delivered."""
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._in_transit.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._open.wait()
            await self._conditions.wait_until_passable(self._application, self._direction)
            if data is None:
                self._destination.close()
            elif not self._destination.is_closing():
                with contextlib.suppress(ConnectionError):  # its own reader notices the end
                    self._destination.write(data)
                    await self._destination.drain()
            self._in_transit.task_done()
            if data is None:
                return
