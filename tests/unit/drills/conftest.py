"""A valid recorded drill, for tests of the checker."""

from __future__ import annotations

import pytest

from tests.unit.drills.recorded import RecordedDrill, valid_drill


@pytest.fixture
def recorded() -> RecordedDrill:
    return valid_drill()
