"""Declarations beside operators' values, and changes of limits in transactions."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from faultline import Faultline, Job
from tests.protocol import steps
from tests.protocol.steps import Connect, Connection, rows, value
from tests.running import working
from tests.waiting import wait_until

from .steps import assert_consistent, claim_all, enqueue, places, set_limit, waiting

ARGUMENTS = "SELECT task, argument, fallback, changed_by FROM faultline.limit_arguments ORDER BY 1"


def declare(conn: Connection, running: int, *arguments: tuple[str, str]) -> list[str]:
    bound = [
        {"limit_name": "key:payment-api", "task": task, "argument": argument}
        for task, argument in arguments
    ]
    limits = {"key:payment-api": {"max_running": running}}
    call = "SELECT * FROM faultline.declare_limits(%s, %s)"
    return [name for (name,) in rows(conn, call, Jsonb(limits), Jsonb(bound))]


def set_by_operator(conn: Connection, running: int, task: str, argument: str) -> None:
    set_limit(conn, "key:payment-api", running, task=task, argument=argument)


# ── operators and code ───────────────────────────────────────────────────────────────────────────


def test_running_jobs_of_a_newly_bound_task_count_under_an_operators_limit(
    conn: Connection,
) -> None:
    set_by_operator(conn, 1, "pay_out", "account")
    enqueue(conn, [{"owner": "a"}] * 2, task="refund")
    [lease] = claim_all(conn, 1)
    assert declare(conn, 5, ("refund", "owner")) == ["key:payment-api"]
    assert places(conn) == {"key:payment-api=a": 1}
    assert claim_all(conn) == []
    steps.commit(conn, lease)
    assert len(claim_all(conn)) == 1
    assert_consistent(conn)


def test_an_argument_that_an_operator_chose_stays_until_the_reset(conn: Connection) -> None:
    declare(conn, 1, ("refund", "owner"))
    set_by_operator(conn, 3, "refund", "tenant")
    set_by_operator(conn, 3, "pay_out", "account")
    declare(conn, 1, ("refund", "holder"))
    assert rows(conn, ARGUMENTS) == [
        ("pay_out", "account", None, "operator"),
        ("refund", "tenant", None, "operator"),
    ]
    assert declare(conn, 1, ("refund", "holder")) == []  # nothing has changed
    conn.execute("SELECT faultline.reset_limit('key:payment-api')")
    assert rows(conn, ARGUMENTS) == [("refund", "holder", None, "code")]


# ── changes while others claim ───────────────────────────────────────────────────────────────────


def test_a_worker_that_cannot_change_a_limit_yet_tries_again(
    app: Faultline, conn: Connection, connect: Connect
) -> None:
    @app.task(name="charge", concurrency=2)
    async def charge(job: Job) -> None: ...

    other = connect()
    other.execute("BEGIN")
    claim_all(other)
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'faultline.limits'::regclass"
    with working(app):
        wait_until(lambda: value(conn, waits) == 1, "the declaration")
        wait_until(lambda: value(conn, waits) == 0, "the end of its patience")
        wait_until(lambda: value(conn, waits) == 1, "the next declaration")
        other.execute("COMMIT")
        charge.enqueue()
        done = "SELECT count(*) FROM faultline.jobs WHERE state = 'succeeded'"
        wait_until(lambda: value(conn, done) == 1, "the job")


def test_a_session_that_changes_a_limit_may_not_idle_in_its_transaction(conn: Connection) -> None:
    timeout = "SHOW idle_in_transaction_session_timeout"

    def after_a_change() -> Any:
        with conn.transaction():
            set_limit(conn, "task:charge", 1)
            return value(conn, timeout)

    assert after_a_change() == "5s"
    assert value(conn, timeout) == "0"
    for shorter in ("1s", "20ms"):
        conn.execute(f"SET idle_in_transaction_session_timeout = '{shorter}'")
        assert after_a_change() == shorter
    conn.execute("SET idle_in_transaction_session_timeout = '1min'")
    assert after_a_change() == "5s"


def test_a_raised_rate_takes_effect_at_once_although_no_job_waits(conn: Connection) -> None:
    for name, options in (
        ("task:charge", {}),
        ("key:customer", {"task": "charge", "argument": "c"}),
    ):
        set_limit(conn, name, rate_jobs=1, rate_seconds=36000, burst=1, **options)
    set_limit(conn, "task:charge2", rate_jobs=1, rate_seconds=36000, burst=1)
    enqueue(conn, [{"c": 1}])
    enqueue(conn, [{}], task="charge2")
    assert len(claim_all(conn)) == 2
    for name in ("task:charge", "key:customer"):
        set_limit(conn, name, rate_jobs=36000, rate_seconds=36000, burst=1)
    soon = (
        "SELECT limit_key, next_start_at - clock_timestamp() < interval '1 s'"
        " FROM faultline.limit_states ORDER BY 1"
    )
    assert rows(conn, soon) == [
        ("key:customer=1", True),
        ("task:charge", True),
        ("task:charge2", False),
    ]
    assert waiting(conn) == {}
