"""Limits on intervals apply to the moment at which an interval ends.

PostgreSQL compares intervals as if a month had 30 days, and adds them by the calendar.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .steps import Connection, claim_new, committed, expire, one, refused, set_job, value

# Each is equal to a harmless length, and lasts another one when it is added to a moment.
ODD = ("-12 mons 360 days 1 hour", "120000 mons -3599995 days", "1 mon -30 days 1 second")
EXTREME = (
    "178000000 years",
    "-178000000 years",
    "2147483647 days",
    "2000000000 hours",
    "0",
    "-1 us",
)
SPANS = st.builds(
    "{} mons {} days {} seconds".format,
    st.integers(-20_000, 20_000) | st.sampled_from([-12, -1, 0, 1, 12]),
    st.integers(-600_000, 600_000) | st.integers(-400, 400),
    st.integers(-700_000, 700_000),
)


def every_span(test: Any) -> Any:
    for span in (*ODD, *EXTREME):
        test = example(span=span)(test)
    sized = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    return sized(given(span=SPANS)(test))


def accepted(conn: Connection, call: str, *params: Any) -> Any:
    """The answer, or None if the call is refused with FL005."""
    with conn.transaction(force_rollback=True):
        try:
            return one(conn, call, *params)
        except psycopg.Error as error:
            if error.sqlstate != "FL005":
                raise
            return None


@every_span
def test_a_lease_ends_within_seven_days(conn: Connection, span: str) -> None:
    if value(conn, "SELECT count(*) FROM faultline.jobs") == 0:
        conn.execute("SELECT faultline.enqueue('send_mail')")
    call = "SELECT lease_expires_at - clock_timestamp() FROM faultline.claim('w', lease => %s)"
    if answer := accepted(conn, call, span):
        assert timedelta(0) < answer[0] + timedelta(minutes=1) <= timedelta(days=7, minutes=1)


@every_span
def test_a_heartbeat_renews_for_seven_days_at_most(conn: Connection, span: str) -> None:
    if value(conn, "SELECT count(*) FROM faultline.jobs") == 0:
        claim_new(conn)
    call = """
        WITH beat AS MATERIALIZED (
            SELECT h.outcome FROM faultline.jobs AS j, faultline.heartbeat(
                'first', ARRAY[j.id], ARRAY[j.fencing_token], ARRAY[j.lease_id], %s) AS h)
        SELECT outcome FROM beat"""
    with conn.transaction(force_rollback=True):
        if accepted(conn, call, span):
            one(conn, call, span)
            left = "SELECT lease_expires_at - clock_timestamp() FROM faultline.jobs"
            assert timedelta(0) < value(conn, left) + timedelta(minutes=1)
            assert value(conn, left) <= timedelta(days=7)


@every_span
def test_a_retry_is_due_neither_in_the_past_nor_after_100_years(
    conn: Connection, span: str
) -> None:
    if value(conn, "SELECT count(*) FROM faultline.jobs") == 0:
        claim_new(conn)
    call = """
        SELECT f.next_run_at >= statement_timestamp()
           AND f.next_run_at < clock_timestamp() + interval '101 years'
        FROM faultline.jobs AS j, faultline.fail(j.id, j.fencing_token, j.lease_id, 'oops', %s) AS f"""
    answer = accepted(conn, call, span)
    assert answer in (None, (True,))


@every_span
def test_a_job_that_ended_less_than_an_hour_ago_is_never_purged(
    conn: Connection, span: str
) -> None:
    if value(conn, "SELECT count(*) FROM faultline.jobs") == 0:
        lease = committed(conn)
        set_job(conn, lease.job_id, "finished_at = clock_timestamp() - interval '30 minutes'")
        conn.execute("SET session_replication_role = replica")
        conn.execute(
            "UPDATE faultline.ledger SET committed_at = clock_timestamp() - interval '30 minutes'"
        )
        conn.execute("SET session_replication_role = origin")
    jobs = "SELECT succeeded + failed FROM faultline.purge_jobs(%s, %s)"
    assert accepted(conn, jobs, span, span) in (None, (0,))
    with conn.transaction(force_rollback=True):
        conn.execute("DELETE FROM faultline.jobs")
        ledger = "SELECT entries FROM faultline.purge_ledger(%s)"
        assert accepted(conn, ledger, span) in (None, (0,))


def test_intervals_that_never_end_are_refused_as_arguments(conn: Connection) -> None:
    lease = claim_new(conn)
    endless = [None]
    if conn.info.server_version >= 170000:
        endless += ["infinity", "-infinity"]
    for span in endless:
        with refused("FL005"):
            conn.execute("SELECT faultline.claim('w', lease => %s)", [span])
        with refused("FL005"):
            conn.execute("SELECT faultline.heartbeat('w', lease => %s)", [span])
        with refused("FL005"):
            conn.execute("SELECT faultline.fail(%s, %s, %s, 'oops', %s)", [*lease, span])
    expire(conn, lease)


@pytest.mark.parametrize("span", [*ODD, "0", "-1 day", "100000 days"])
def test_an_odd_idle_limit_never_means_no_limit(conn: Connection, span: str) -> None:
    assert value(conn, "SELECT faultline.limit_idling(%s)::interval > '0'", span)
