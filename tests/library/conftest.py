"""An application on the test's own database, and an ear for what it says."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest

from faultline import Faultline
from faultline.events import log

from .running import Connection, EventTap


@pytest.fixture
def app(database_url: str) -> Iterator[Faultline]:
    application = Faultline(database_url)
    yield application
    application.close()


@pytest.fixture
def effects(conn: Connection) -> str:
    """A table of the user's own, to see whose writes took effect."""
    conn.execute("CREATE TABLE effects (note text)")
    return "effects"


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> EventTap:
    """Everything that is said from now on, routine included."""
    stream = StringIO()
    monkeypatch.setattr(log, "_logger", None)
    monkeypatch.setattr(log, "is_verbose", False)
    log.open(style="json", verbose=True, stream=stream)
    return EventTap(stream)
