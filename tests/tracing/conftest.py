"""An application on the test's own database, traced into memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faultline import Faultline
from faultline.tracing import tracing
from tests.library.running import Connection
from tests.tracing.recorded import Recorded


@pytest.fixture
def app(database_url: str) -> Iterator[Faultline]:
    application = Faultline(database_url)
    yield application
    application.close()


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Faultline traces with a provider of the test's own, and the process's global one stays unset."""
    record = Recorded()
    tracing.use(record.provider)
    yield record
    tracing.use(None)
    record.provider.shutdown()


@pytest.fixture
def effects(conn: Connection) -> str:
    conn.execute("CREATE TABLE effects (note text)")
    return "effects"
