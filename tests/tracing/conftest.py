"""Traces kept in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faultline.tracing import tracing
from tests.tracing.recorded import Recorded


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Faultline traces with the test's own provider; the global one stays unset."""
    record = Recorded()
    tracing.use(record.provider)
    yield record
    tracing.use(None)
    record.provider.shutdown()
