"""One direction of a connection: what is put in comes out in order, after a while, if the weather lets it."""

from __future__ import annotations

import asyncio
import contextlib

from faultline_drills.proxy.weather import Direction, Weather

_LONGEST_QUEUE = 256  # pieces on their way; then the sender is kept waiting


class Line:
    def __init__(
        self,
        far_end: asyncio.StreamWriter,
        weather: Weather,
        direction: Direction,
        application: str,
    ) -> None:
        self.far_end = far_end
        self._weather = weather
        self._direction = direction
        self._application = application
        self._on_the_way: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_LONGEST_QUEUE)
        self._last_due = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def pause(self) -> None:
        """Nothing arrives until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def send(self, data: bytes | None) -> None:
        """None for the end of the connection, which takes its time like everything else."""
        loop = asyncio.get_running_loop()
        wait = self._weather.delay_seconds(self._application, self._direction)
        self._last_due = max(self._last_due, loop.time() + wait)
        await self._on_the_way.put((self._last_due, data))

    async def delivered(self) -> None:
        """Wait until all that was sent so far is out."""
        await self._on_the_way.join()

    async def deliver(self) -> None:
        """Until the end of the connection has been delivered."""
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._on_the_way.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._open.wait()
            await self._weather.passable(self._application, self._direction)
            if data is None:
                self.far_end.close()
            elif not self.far_end.is_closing():
                with contextlib.suppress(ConnectionError):  # gone: its own reader will say so
                    self.far_end.write(data)
                    await self.far_end.drain()
            self._on_the_way.task_done()
            if data is None:
                return
