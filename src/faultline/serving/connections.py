"""Which clients may stay connected: a limit in all and for each address, with room for new ones.

A client that only connects costs as much as one that asks. So when there are as many connections as there
may be, the one that has waited longest for a request makes room: of the address that has most of them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Protocol


class Connection(Protocol):
    @property
    def address(self) -> str: ...

    def hang_up(self) -> None:
        """Close it at once; it has no request under way."""


class Connections:
    """The open connections, and in which order they have begun to wait for a request."""

    def __init__(self, *, limit: int, per_address: int) -> None:
        self._limit, self._per_address = limit, per_address
        self._open: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[Connection, None]] = {}
        self._admitted: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._admitted)

    def admit(self, connection: Connection) -> bool:
        """Whether it may stay. An idle connection may be closed for it."""
        address = connection.address
        if self._open[address] >= self._per_address and not self._make_room(address):
            return False
        if len(self._admitted) >= self._limit and not self._make_room(self._crowdest()):
            return False
        self._admitted.add(connection)
        self._open[address] += 1
        self.wait(connection)
        return True

    def wait(self, connection: Connection) -> None:
        """It has no request under way from now on."""
        if connection in self._admitted:
            waiting = self._waiting.setdefault(connection.address, OrderedDict())
            waiting.setdefault(connection)

    def busy(self, connection: Connection) -> None:
        """A request of it is under way."""
        if waiting := self._waiting.get(connection.address):
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.address]

    def leave(self, connection: Connection) -> None:
        if connection not in self._admitted:
            return
        self._admitted.discard(connection)
        self.busy(connection)
        self._open[connection.address] -= 1
        if not self._open[connection.address]:
            del self._open[connection.address]

    def _crowdest(self) -> str | None:
        """Of the addresses with an idle connection, the one with most connections."""
        return max(self._waiting, key=lambda address: self._open[address], default=None)

    def _make_room(self, address: str | None) -> bool:
        waiting = self._waiting.get(address) if address is not None else None
        if not waiting:
            return False
        oldest = next(iter(waiting))
        self.leave(oldest)
        oldest.hang_up()
        return True
