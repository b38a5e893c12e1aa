"""A story for the checker to judge."""

from __future__ import annotations

import pytest

from tests.unit.drills.recorded import RecordedDrill, all_is_right


@pytest.fixture
def recorded() -> RecordedDrill:
    return all_is_right()
