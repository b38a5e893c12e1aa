"""A sample of the crash sweep, drawn from a seed."""

from __future__ import annotations

import pytest

from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.sweep import SweepFault, SweepTarget, choose
from tests.proof import Tally
from tests.slow import slow_unless
from tests.sweep.conftest import CachedPoints

SEED = 20
# The number of points during the work, and while sessions are opened and closed.
SHARES = {
    SweepTarget.WORKER: (2, 1),
    SweepTarget.RECONCILER: (1, 1),
    SweepTarget.SCHEDULER: (1, 1),
    SweepTarget.MIGRATOR: (1, 1),
    SweepTarget.UPGRADER: (1, 0),
}
SESSION_WORDS = ("startup", "password", "terminate", "check", "pg_backend_pid", "SET default")
POINTS = [
    (target, fault)
    for target in SweepTarget
    for fault in SweepFault
    if target.holds_jobs or fault is not SweepFault.OVERLAP
]


@pytest.mark.timeout(300)  # several real crashes, each with its own bounds
@pytest.mark.parametrize(
    ("target", "fault"),
    slow_unless(POINTS, (SweepTarget.WORKER, SweepFault.KILL_AFTER)),
    ids=[f"{t}-{f}" for t, f in POINTS],
)
def test_after_a_fault_at_any_point_every_job_ends_with_one_effect(
    swept: CachedPoints, target: SweepTarget, fault: SweepFault, tally: Tally
) -> None:
    points = swept.points(target)
    about_sessions = [p for p in points if any(word in p.label.what for word in SESSION_WORDS)]
    about_work = [point for point in points if point not in about_sessions]
    chosen = [
        each
        for kind, share in zip((about_work, about_sessions), SHARES[target], strict=True)
        for each in choose(kind, [fault], sample=share, seed=SEED)
    ]
    results = [swept.run(point, fault) for point, _ in chosen]
    for result in results:
        assert result.verdict is not DrillVerdict.INVALID, (str(result.point), result.findings)
    reached = [result for result in results if result.verdict is DrillVerdict.VALID]
    assert len(reached) >= len(chosen) - 1, [str(r.point) for r in results if r not in reached]
    counted = ("kills", "takeovers", "stale_rejections", "commits", "lost_acks", "unknown_commits")
    tally(
        "sweep point",
        scenarios=len(reached),
        **{name: sum(each.tally.get(name, 0) for each in reached) for name in counted},
    )
