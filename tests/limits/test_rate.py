"""A rate: how many jobs start in a period, how many at once, when the next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from faultline.postgres.sessions import run
from faultline.statements.invariants import INVARIANTS, Finding, check
from tests.protocol import steps
from tests.protocol.steps import Connection, rows, value
from tests.waiting import wait_until

from .steps import claim_all, enqueue, limit_customers, parked, repair, set_limit, waiting


def started_at(conn: Connection) -> list[datetime]:
    query = "SELECT claimed_at FROM faultline.jobs WHERE claimed_at IS NOT NULL ORDER BY 1"
    return [moment for (moment,) in rows(conn, query)]


def set_rate(conn: Connection, jobs: int, seconds: float, burst: int = 1, **options: Any) -> None:
    given = dict(rate_jobs=jobs, rate_seconds=seconds, burst=burst, **options)
    running = given.pop("max_running", None)
    set_limit(conn, "task:charge", running, **given)


def exceeded(conn: Connection) -> list[Finding]:
    [rates] = [each for each in INVARIANTS if each.name == "rates_are_not_exceeded"]
    return run(conn, check(rates))


def let_pass(conn: Connection, seconds: float) -> None:
    """As if so much time had passed for the bucket of the task."""
    change = "next_start_at = next_start_at - make_interval(secs => %s)"
    conn.execute(f"UPDATE faultline.limit_states SET {change}", [seconds])


def test_at_most_the_burst_starts_at_once(conn: Connection) -> None:
    set_rate(conn, 1, 3600, burst=3)
    enqueue(conn, [{}] * 5)
    assert len(claim_all(conn)) == 3
    assert waiting(conn) == {"task:charge": 2}
    assert parked(conn) == 2
    assert claim_all(conn) == []


def test_one_job_starts_for_each_share_of_the_period(conn: Connection) -> None:
    set_rate(conn, 10, 3600, burst=2)
    enqueue(conn, [{}] * 9)
    assert len(claim_all(conn)) == 2
    let_pass(conn, 360)
    assert len(claim_all(conn)) == 1
    let_pass(conn, 359)
    assert claim_all(conn) == []
    let_pass(conn, 2)
    assert len(claim_all(conn)) == 1
    let_pass(conn, 86_400)  # unused starts are kept up to the burst
    assert len(claim_all(conn)) == 2


def test_in_no_window_start_more_jobs_than_the_bucket_allows(conn: Connection) -> None:
    rate, burst, jobs = 200, 3, 60
    set_rate(conn, rate, 1, burst=burst)
    enqueue(conn, [{}] * jobs)
    ended: list[steps.Lease] = []

    def all_started() -> bool:
        ended.extend(claim_all(conn))
        return len(ended) == jobs

    wait_until(all_started, "all starts")
    moments = started_at(conn)
    for first in range(jobs):
        for last in range(first, jobs):
            window = (moments[last] - moments[first]).total_seconds()
            assert last - first + 1 <= burst + window * rate + 1e-6
    assert exceeded(conn) == []


def test_verify_finds_more_starts_than_a_rate_allows(conn: Connection) -> None:
    """The control: the limit is set when the jobs have started."""
    set_rate(conn, 1000, 1, burst=100)
    enqueue(conn, [{}] * 8)
    assert len(claim_all(conn)) == 8
    assert exceeded(conn) == []
    conn.execute("UPDATE faultline.limits SET rate_jobs = 1, rate_seconds = 3600, burst = 5")
    [finding] = exceeded(conn)  # eight are three more than the burst, of which one is allowed
    assert finding.evidence.startswith("task:charge: 2 too many up to ")


def test_verify_judges_each_key_of_a_rate_apart(conn: Connection) -> None:
    limit_customers(conn, 100)
    rate = "UPDATE faultline.limits SET rate_jobs = 1, rate_seconds = 3600, burst = 2"
    enqueue(conn, [{"customer": number % 3} for number in range(9)])
    assert len(claim_all(conn)) == 9
    conn.execute(rate)
    assert exceeded(conn) == []
    enqueue(conn, [{"customer": 1}] * 2)
    conn.execute("UPDATE faultline.limits SET rate_jobs = NULL, rate_seconds = NULL, burst = NULL")
    assert len(claim_all(conn)) == 2
    conn.execute(rate)
    assert {finding.evidence.split(":")[1] for finding in exceeded(conn)} == {"customer=1"}


def test_jobs_that_wait_for_a_rate_start_by_priority_and_time(conn: Connection) -> None:
    set_rate(conn, 1, 3600)
    enqueue(conn, [{}])
    claim_all(conn)
    [second] = enqueue(conn, [{}])
    assert claim_all(conn) == []
    [urgent] = enqueue(conn, [{}], priority=0)
    assert claim_all(conn) == []
    let_pass(conn, 3600)
    assert [lease.job_id for lease in claim_all(conn)] == [urgent]
    let_pass(conn, 3600)
    assert [lease.job_id for lease in claim_all(conn)] == [second]


def test_a_cancelled_job_leaves_its_start_to_the_next_one(conn: Connection) -> None:
    set_rate(conn, 1, 3600)
    enqueue(conn, [{}])
    claim_all(conn)
    cancelled, next_one = enqueue(conn, [{}] * 2)
    assert claim_all(conn) == []
    steps.cancel(conn, cancelled)
    let_pass(conn, 3600)
    assert [lease.job_id for lease in claim_all(conn)] == [next_one]


def test_a_clock_that_was_set_back_delays_the_next_start_by_one_share_at_most(
    conn: Connection,
) -> None:
    set_rate(conn, 3600, 3600)
    enqueue(conn, [{}] * 3)
    claim_all(conn)
    assert waiting(conn) == {"task:charge": 2}
    let_pass(conn, -86_400)
    repair(conn)
    limit = timedelta(seconds=1)
    state = "SELECT next_start_at - clock_timestamp() FROM faultline.limit_states"
    assert value(conn, state) <= limit


def test_a_job_under_a_rate_and_a_limit_of_concurrency_needs_both(conn: Connection) -> None:
    set_rate(conn, 1, 3600, burst=2, max_running=1)
    enqueue(conn, [{}] * 4)
    [first] = claim_all(conn)
    assert claim_all(conn) == []
    steps.commit(conn, first)
    [second] = claim_all(conn)
    steps.commit(conn, second)
    assert claim_all(conn) == []
    let_pass(conn, 3600)
    assert len(claim_all(conn)) == 1


@pytest.mark.parametrize("again", [1, 3])
def test_a_changed_rate_takes_effect_at_once(conn: Connection, again: int) -> None:
    set_rate(conn, 1, 3600)
    enqueue(conn, [{}] * 6)
    assert len(claim_all(conn)) == 1
    set_limit(conn, "task:charge", again)
    assert len(claim_all(conn)) == again - 1  # the job that runs counts


def test_a_limit_whose_places_are_full_causes_no_writes_and_no_wake_up(
    conn: Connection,
) -> None:
    """Its rate allows a start, but the end of a job is what its jobs wait for."""
    set_rate(conn, 100, 1, burst=10, max_running=1)
    enqueue(conn, [{}] * 5)
    assert len(claim_all(conn)) == 1
    assert claim_all(conn) == []
    let_pass(conn, 60)
    claim_all(conn)
    rows_of = "SELECT '{0}' AS relation, xmin::text, ctid::text FROM faultline.{0}"
    tables = "jobs", "waiting_jobs", "limit_states", "places"
    versions = " UNION ALL ".join(rows_of.format(table) for table in tables) + " ORDER BY 1, 2, 3"
    before = rows(conn, versions)
    heard: list[str] = []
    conn.add_notify_handler(lambda notice: heard.append(notice.payload))
    conn.execute("LISTEN faultline")
    for _ in range(3):
        assert claim_all(conn) == []
    assert rows(conn, versions) == before
    assert heard == []


def test_jobs_under_both_limits_all_start_although_places_and_starts_run_out_in_turn(
    conn: Connection,
) -> None:
    set_rate(conn, 1, 3600, burst=1, max_running=2)
    enqueue(conn, [{}] * 6)
    running: list[steps.Lease] = []
    started = 0
    for _ in range(12):
        running += (new := claim_all(conn))
        started += len(new)
        if len(running) == 2:
            steps.commit(conn, running.pop(0))
            assert claim_all(conn) == []  # a place is free, and the rate allows no start
        let_pass(conn, 3600)
    assert started == 6
