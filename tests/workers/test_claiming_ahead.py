"""A worker claims ahead while jobs are short, and releases what it cannot start."""

from __future__ import annotations

import asyncio

from faultline import Faultline, Job
from faultline.config import WorkerSettings
from faultline.model import Claim
from faultline.workers import Worker
from faultline.workers.claiming import ClaimAhead, ClaimCursor
from tests.running import Connection, background, count, value
from tests.waiting import LIMIT_SECONDS, idle, wait_until


def claim_of(queue: str, priority: int, due_at: str, job_id: str = "j") -> Claim:
    return Claim(job_id, 1, "l", "task", queue, "{}", 1, 5, 0, priority, due_at)


# ── how many are claimed ahead ───────────────────────────────────────────────────────────────────


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


# ── the claim cursor ─────────────────────────────────────────────────────────────────────────────────


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


# ── the worker ───────────────────────────────────────────────────────────────────────────────────


def test_jobs_claimed_ahead_of_a_slow_job_are_released(app: Faultline, conn: Connection) -> None:
    """Many short jobs, then one that takes long: those behind it must not wait for it."""
    gate = asyncio.Event()
    slow: list[int] = []  # how many waited behind each

    @app.task()
    async def short(job: Job) -> None:
        # Which job takes long is known when the worker has claimed ahead, however fast it is.
        if not slow and (waiting := worker._slots.waiting) > 0:
            slow.append(waiting)
            await asyncio.wait_for(gate.wait(), LIMIT_SECONDS)

    short.enqueue_many([{}] * 3000)
    worker = Worker(app, WorkerSettings(concurrency=1, poll_seconds=0.2))
    handed_back = "SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'released'"
    one_runs = "SELECT count(*) = 1 FROM faultline.jobs WHERE state = 'running'"
    with background(worker.run, stop=worker.stop) as running:
        wait_until(lambda: slow, "a job that takes long before others")
        wait_until(lambda: value(conn, handed_back) >= slow[0], "those behind it handed back")
        wait_until(lambda: value(conn, one_runs), "an end of the commits before it")
        assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE attempts > 1") == 0
        wanted = count(conn, "faultline.ledger") + 1 + slow[0]
        running.call(gate.set)
        wait_until(lambda: count(conn, "faultline.ledger") >= wanted, "its end, and theirs")
    assert value(conn, "SELECT max(attempts) FROM faultline.jobs") == 1


def test_a_stopping_worker_releases_the_jobs_it_claimed_ahead(
    app: Faultline, conn: Connection
) -> None:
    runs = 0

    @app.task()
    async def short(job: Job) -> None:
        nonlocal runs
        runs += 1
        await idle(0.002)
        if runs >= 200 and worker._slots.waiting > 0 and not stopped:
            stopped.append(worker._slots.waiting)
            worker.stop()

    stopped: list[int] = []  # how many waited for a slot then
    short.enqueue_many([{}] * 5000)
    worker = Worker(app, WorkerSettings(concurrency=10, poll_seconds=0.2))
    with background(worker.run, stop=worker.stop) as running:
        wait_until(lambda: not running.is_alive, "the end of the worker")
    held = "SELECT count(*) FROM faultline.jobs WHERE state = 'running'"
    assert value(conn, held) == 0
    done = count(conn, "faultline.ledger")
    assert 200 <= done < 5000
    assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE state = 'queued'") == 5000 - done
    assert value(conn, "SELECT max(attempts) FROM faultline.jobs WHERE state = 'queued'") == 0
    handed_back = "SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'released'"
    assert value(conn, handed_back) >= stopped[0] > 0
