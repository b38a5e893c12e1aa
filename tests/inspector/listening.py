"""A client of the stream: events as they come, with a bound on every wait."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

BOUND_SECONDS = 30.0


class StreamEvent(NamedTuple):
    name: str
    data: Any
    id: str | None


class Listener:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response

    def line(self) -> str | None:
        """None: the stream has ended."""
        line = self._response.readline()
        return line.decode().rstrip("\n") if line else None

    def next(self) -> StreamEvent | None:
        """The next event; None when the stream has ended before it."""
        fields: dict[str, str] = {}
        while (line := self.line()) is not None:
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                return StreamEvent(fields["event"], json.loads(fields["data"]), fields.get("id"))
        return None

    def wait_for(self, name: str, holds: Callable[[Any], bool] = lambda data: True) -> Any:
        """The data of the next event of that name for which it holds."""
        deadline = time.monotonic() + BOUND_SECONDS
        while (event := self.next()) is not None:
            if event.name == name and holds(event.data):
                return event.data
            assert time.monotonic() < deadline, f"no {name} like that"
        raise AssertionError(f"the stream ended before a {name} like that")


@contextmanager
def listening(address: str) -> Iterator[Listener]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=BOUND_SECONDS)
    try:
        connection.request("GET", "/api/stream")
        yield Listener(connection.getresponse())
    finally:
        connection.close()
