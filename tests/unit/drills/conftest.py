"""A story for the checker to judge."""

from __future__ import annotations

import pytest

from tests.unit.drills.told import Told, all_is_right


@pytest.fixture
def told() -> Told:
    return all_is_right()
