"""Workers with metrics on their own database; a temporary meter in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faultline.metrics import Part, meter
from faultline.metrics.meter import Meter
from tests.processes.conftest import database  # noqa: F401 - the fixture
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase


@pytest.fixture
def fleet(
    database_url: str,
    database: ObservedDatabase,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Fleet]:
    monkeypatch.setattr("tests.processes.fleet.APP", "tests.metrics.jobs:app")
    fleet = Fleet(database_url)
    yield fleet
    fleet.end()


@pytest.fixture
def counting() -> Iterator[Meter]:
    """Metrics are on in this process until the test ends."""
    meter.switch_off()
    yield meter.switch_on(*Part)
    meter.switch_off()
