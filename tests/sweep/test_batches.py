"""Every fault at every message of a batch handler's transaction."""

from __future__ import annotations

import pytest

from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.sweep import SweepFault, SweepPoint, SweepTarget
from tests.proof import Tally
from tests.sweep.conftest import CachedPoints

_OPENING = "BEGIN of a batch"


def of_the_batch(points: tuple[SweepPoint, ...]) -> list[SweepPoint]:
    """The messages of its session from the opening to the COMMIT."""
    (opening,) = [n for n, point in enumerate(points) if point.label.what == _OPENING]
    purpose, found = points[opening].label.purpose, []
    for point in points[opening:]:
        if point.label.purpose == purpose:
            found.append(point)
            if point.label.what == "COMMIT":
                return found
    raise AssertionError(f"no COMMIT after {points[opening]}")


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize("fault", SweepFault)
def test_after_a_fault_at_any_message_of_a_batch_every_job_ends_with_one_effect(
    swept: CachedPoints, fault: SweepFault, tally: Tally
) -> None:
    points = of_the_batch(swept.points(SweepTarget.WORKER))
    assert [point.label.what for point in points] == [
        _OPENING,
        *3 * ["INSERT INTO drill.effects"],
        "COMMIT",
    ]
    for point in points:
        result = swept.run(point, fault)
        assert result.verdict is DrillVerdict.VALID, (str(point), result.findings)
        tally("sweep point", scenarios=1, commits=result.tally.get("commits", 0))
