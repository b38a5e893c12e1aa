"""How much a worker claims ahead, and where its claims resume."""

from __future__ import annotations

from faultline.model import Claim
from faultline.workers.claiming import ClaimAhead, ClaimCursor


def claim_of(queue: str, priority: int, due_at: str, job_id: str = "j") -> Claim:
    return Claim(job_id, 1, "l", "task", queue, "{}", 1, 5, 0, priority, due_at)


def claimed_ahead(jobs: int, seconds: float, *, rounds: int = 20) -> int:
    """How many jobs a worker claims ahead that ends `jobs` attempts in each `seconds`."""
    ahead, now = ClaimAhead(limit=500), 0.0
    ahead.jobs(now, ended=0)
    for number in range(1, rounds + 1):
        now += seconds
        wanted = ahead.jobs(now, ended=number * jobs)
    return wanted


def test_a_worker_that_has_done_nothing_yet_claims_nothing_ahead() -> None:
    assert ClaimAhead(limit=500).jobs(1000.0, ended=0) == 0


def test_long_jobs_are_not_claimed_ahead() -> None:
    assert claimed_ahead(10, 1.0) == 0


def test_short_jobs_are_claimed_ahead_but_not_without_end() -> None:
    assert 0 < claimed_ahead(10, 0.01) <= 50
    assert claimed_ahead(1_000, 0.01) == 500


def test_a_worker_that_slows_down_claims_nothing_ahead_at_once() -> None:
    ahead, now = ClaimAhead(limit=500), 0.0
    for number in range(1, 21):
        now += 0.01
        assert ahead.jobs(now, ended=100 * number) >= 0
    assert ahead.jobs(now, ended=2_000) > 0
    assert ahead.jobs(now + 1.0, ended=2_000) == 0


def test_the_first_claim_scans_from_the_start() -> None:
    assert ClaimCursor().resume_after(0.0) is None


def test_the_next_claim_resumes_after_the_last_job_of_each_queue_and_priority() -> None:
    mark = ClaimCursor()
    claims = [
        claim_of("mail", 5, "2026-01-01", "a"),
        claim_of("mail", 5, "2026-01-02", "b"),
        claim_of("bills", 0, "2026-01-03", "c"),
    ]
    mark.advance(claims, was_full=True, began=0.0, ended=0.001)
    assert mark.resume_after(0.1) == (
        '{"mail":{"5":["2026-01-02","b"]},"bills":{"0":["2026-01-03","c"]}}'
    )


def test_full_scans_recur() -> None:
    mark = ClaimCursor()
    mark.advance([claim_of("mail", 5, "d")], was_full=True, began=0.0, ended=0.0)
    assert mark.resume_after(0.2) is not None
    mark.advance([claim_of("mail", 5, "e")], was_full=False, began=0.2, ended=0.201)
    assert mark.resume_after(0.3) is None


def test_the_more_a_full_scan_costs_the_rarer_it_is() -> None:
    mark = ClaimCursor()
    mark.advance([claim_of("mail", 5, "d")], was_full=True, began=0.0, ended=1.0)
    assert mark.resume_after(20.0) is not None
    assert mark.resume_after(21.5) is None
