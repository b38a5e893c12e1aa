"""Unique jobs: which enqueues make a job, which keep one, and which change it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from faultline import (
    EnqueueOutcome,
    Faultline,
    IdempotencyConflict,
    InvalidInput,
    Job,
    JobState,
    Unique,
    UniqueKeyHeld,
)
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.task import Task
from tests.running import Connection, count, work_off

QUEUED, KEPT = EnqueueOutcome.QUEUED, EnqueueOutcome.KEPT
EXISTING, REPLACED = EnqueueOutcome.EXISTING, EnqueueOutcome.REPLACED
RESCHEDULED = EnqueueOutcome.RESCHEDULED
BY_CUSTOMER = ("customer",)


def unique(**given: Any) -> Unique:
    return Unique(by=BY_CUSTOMER, **given)


@pytest.fixture
def sync(app: Faultline) -> Task[..., Any]:
    @app.task(name="sync")
    def sync(job: Job, customer: Any, note: str = "", region: str = "eu") -> None: ...

    return sync


def claim(conn: Connection) -> Any:
    return run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=600))[0]


def jobs(conn: Connection) -> int:
    return count(conn, "faultline.jobs")


# ── which jobs are equal ─────────────────────────────────────────────────────────────────────────


def test_a_second_enqueue_keeps_the_job_of_its_key(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique())
    first, second = one.enqueue(customer=7, note="a"), one.enqueue(customer=7, note="b")
    other = one.enqueue(customer=8)
    assert (first.outcome, second.outcome, other.outcome) == (QUEUED, KEPT, QUEUED)
    assert (first.existing, second.existing) == (False, True)
    assert second.job_id == first.job_id != other.job_id
    assert (jobs(conn), app.get(first.job_id).payload["note"]) == (2, "a")


def test_without_names_all_arguments_are_compared(sync: Task[..., Any], conn: Connection) -> None:
    one = sync.options(unique=Unique())
    answers = [one.enqueue(customer=7, note=note).outcome for note in ("a", "b", "a")]
    assert answers == [QUEUED, QUEUED, KEPT]
    assert sync.options(unique=Unique(by=())).enqueue(customer=7, note="b").outcome is KEPT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([{"x": 1.50}], [{"x": 1.5}]),
        ("ä" * 4000, "ä" * 4000),
    ],
)
def test_arguments_are_compared_by_their_json_value(
    sync: Task[..., Any], one: Any, other: Any
) -> None:
    configured = sync.options(unique=unique())
    assert configured.enqueue(customer=one).outcome is QUEUED
    assert configured.enqueue(customer=other).outcome is KEPT


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (None, "null"), ([1, 2], [2, 1]), (1, True)])
def test_different_json_values_are_different_keys(
    sync: Task[..., Any], one: Any, other: Any
) -> None:
    configured = sync.options(unique=unique())
    assert configured.enqueue(customer=one).outcome is QUEUED
    assert configured.enqueue(customer=other).outcome is QUEUED


def test_an_argument_that_is_left_out_equals_its_default(sync: Task[..., Any]) -> None:
    one = sync.options(unique=Unique(by=("customer", "region")))
    assert one.enqueue(customer=7).outcome is QUEUED
    assert one.enqueue(customer=7, region="eu").outcome is KEPT
    assert one.enqueue(customer=7, region="us").outcome is QUEUED
    everything = sync.options(unique=Unique())
    assert everything.enqueue(customer=9).outcome is QUEUED
    assert everything.enqueue(customer=9, note="", region="eu").outcome is KEPT


def test_a_person_can_read_the_key(sync: Task[..., Any], conn: Connection) -> None:
    made = sync.options(unique=unique()).enqueue(customer=7)
    long = sync.options(unique=unique()).enqueue(customer="x" * 2000)
    keys = dict(conn.execute("SELECT job_id, unique_key FROM faultline.unique_keys").fetchall())
    assert keys[made.job_id] == 'sync {"customer": 7}'
    assert keys[long.job_id].startswith("sync sha256:")
    assert len(keys[long.job_id]) == len("sync sha256:") + 64


def test_tasks_do_not_share_keys(app: Faultline, sync: Task[..., Any]) -> None:
    @app.task(name="other", unique=unique())
    def other(job: Job, customer: int) -> None: ...

    assert sync.options(unique=unique()).enqueue(customer=7).outcome is QUEUED
    assert other.enqueue(customer=7).outcome is QUEUED
    assert other.enqueue(customer=7).outcome is KEPT


# ── how long a job counts ────────────────────────────────────────────────────────────────────────


def test_a_queued_key_is_free_from_the_first_claim_on(
    sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(while_="queued"))
    one.enqueue(customer=7)
    claimed = claim(conn)
    assert one.enqueue(customer=7).outcome is QUEUED
    run(conn, protocol.release(claimed))  # it waits again, and does not count any more
    assert one.enqueue(customer=7).outcome is KEPT
    assert jobs(conn) == 2


def test_an_unfinished_key_is_held_through_attempts_until_the_end(
    sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique())
    first = one.enqueue(customer=7)
    running = claim(conn)
    assert one.enqueue(customer=7).job_id == first.job_id
    run(conn, protocol.fail(running, error="broken", retry_seconds=0))
    assert one.enqueue(customer=7).outcome is KEPT
    run(conn, protocol.commit(claim(conn)))
    assert one.enqueue(customer=7).outcome is QUEUED


def test_a_window_holds_the_key_after_the_job_has_ended(
    sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(for_=timedelta(hours=1)))
    first = one.enqueue(customer=7)
    run(conn, protocol.commit(claim(conn)))
    assert one.enqueue(customer=7).job_id == first.job_id
    conn.execute("UPDATE faultline.unique_jobs SET held_until = held_until - interval '1 hour'")
    assert one.enqueue(customer=7).outcome is QUEUED


def test_the_holder_counts_by_its_own_words(sync: Task[..., Any], conn: Connection) -> None:
    sync.options(unique=unique(while_="queued")).enqueue(customer=7)
    claim(conn)
    assert sync.options(unique=unique(while_="unfinished")).enqueue(customer=7).outcome is QUEUED


# ── what a second enqueue does ───────────────────────────────────────────────────────────────────


def test_replace_runs_the_last_payload_once(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(on_conflict="replace"))
    first = one.enqueue(customer=7, note="a")
    assert [one.enqueue(customer=7, note=note).outcome for note in "bc"] == [REPLACED] * 2
    assert (jobs(conn), app.get(first.job_id).payload["note"]) == (1, "c")
    logged = conn.execute("SELECT outcome, former_payload ->> 'note' FROM faultline.attempts_log")
    assert logged.fetchall() == [("replaced", "a"), ("replaced", "b")]
    assert work_off(app, first.job_id).state is JobState.SUCCEEDED


def test_only_the_first_ten_former_payloads_are_stored(
    sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(on_conflict="replace"))
    for number in range(30):
        one.enqueue(customer=7, note=str(number))
    assert count(conn, "faultline.attempts_log") == 10
    row = conn.execute("SELECT replaced FROM faultline.unique_jobs").fetchone()
    assert row == (29,)


@pytest.mark.parametrize("on_conflict", ["replace", "reschedule"])
def test_a_job_that_was_claimed_is_kept_as_it_is(
    app: Faultline, sync: Task[..., Any], conn: Connection, on_conflict: Any
) -> None:
    one = sync.options(unique=unique(on_conflict=on_conflict))
    first = one.enqueue(customer=7, note="a")
    running = claim(conn)
    late = one.options(delay=3600)
    assert late.enqueue(customer=7, note="b").outcome is KEPT
    run(conn, protocol.release(running))
    assert late.enqueue(customer=7, note="c").outcome is KEPT
    record = app.get(first.job_id)
    assert record.payload["note"] == "a"
    assert record.next_run_at < datetime.now(UTC) + timedelta(minutes=30)


def test_reschedule_moves_the_time_and_the_expiry_and_keeps_the_payload(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(on_conflict="reschedule"))
    first = one.options(delay=60, expires_in=100).enqueue(customer=7, note="a")
    later = datetime(2031, 1, 1, tzinfo=UTC)
    assert one.options(run_at=later).enqueue(customer=7, note="b").outcome is RESCHEDULED
    record = app.get(first.job_id)
    assert (record.next_run_at, record.payload["note"]) == (later, "a")
    expiry = conn.execute("SELECT expires_at FROM faultline.jobs").fetchone()
    assert expiry == (None,)
    assert one.enqueue(customer=7).outcome is RESCHEDULED
    assert claim(conn).job_id == first.job_id  # due at once


def test_options_other_than_payload_and_time_stay_those_of_the_first(
    app: Faultline, sync: Task[..., Any]
) -> None:
    first = sync.options(unique=unique(), queue="a", priority=1).enqueue(customer=7)
    for on_conflict in ("replace", "reschedule"):
        changing = sync.options(unique=unique(on_conflict=on_conflict), queue="b", priority=2)
        changing.enqueue(customer=7)
    record = app.get(first.job_id)
    assert (record.queue, record.priority) == ("a", 1)


# ── many jobs in one call ────────────────────────────────────────────────────────────────────────


def test_equal_jobs_of_one_call_are_judged_in_their_order(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(on_conflict="replace"))
    answers = one.enqueue_many([{"customer": 7, "note": note} for note in "abc"])
    assert [answer.outcome for answer in answers] == [QUEUED, REPLACED, REPLACED]
    assert len({answer.job_id for answer in answers}) == jobs(conn) == 1
    assert app.get(answers[0].job_id).payload["note"] == "c"


def test_unique_and_other_jobs_go_through_one_call(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one, plain = sync.options(unique=unique()), sync
    held = one.enqueue(customer=7)
    specs = [one.job(customer=8), plain.job(customer=7), one.job(customer=7), one.job(customer=8)]
    answers = app.enqueue_many(specs)
    assert [answer.outcome for answer in answers] == [QUEUED, QUEUED, KEPT, KEPT]
    assert answers[2].job_id == held.job_id
    assert answers[3].job_id == answers[0].job_id
    assert jobs(conn) == 3


def test_ten_thousand_equal_jobs_of_one_call_make_one(
    sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(on_conflict="reschedule"))
    answers = one.enqueue_many([{"customer": 7}] * 10_000)
    assert ([a.outcome for a in answers[:2]], jobs(conn)) == ([QUEUED, RESCHEDULED], 1)


def test_a_rollback_leaves_neither_job_nor_key(sync: Task[..., Any], conn: Connection) -> None:
    one = sync.options(unique=unique())
    with conn.transaction(force_rollback=True):
        one.options(conn=conn).enqueue(customer=7)
    assert (jobs(conn), count(conn, "faultline.unique_keys")) == (0, 0)
    assert one.enqueue(customer=7).outcome is QUEUED


# ── with an idempotency key ──────────────────────────────────────────────────────────────────────


def test_an_idempotency_key_is_judged_first(sync: Task[..., Any], conn: Connection) -> None:
    one = sync.options(unique=unique())
    first = one.options(idempotency_key="a").enqueue(customer=7)
    run(conn, protocol.commit(claim(conn)))
    again = one.options(idempotency_key="a").enqueue(customer=7)
    assert (again.job_id, again.outcome) == (first.job_id, EXISTING)
    changed = one.options(unique=Unique(by=("note",)), idempotency_key="a").enqueue(customer=7)
    assert changed.outcome is EXISTING
    assert count(conn, "faultline.unique_keys") == 1  # no key of a job that was not made
    with pytest.raises(IdempotencyConflict):
        one.options(idempotency_key="a").enqueue(customer=8)
    assert one.options(idempotency_key="b").enqueue(customer=7).outcome is QUEUED


def test_a_job_that_was_not_made_does_not_use_up_its_idempotency_key(
    sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique())
    first = one.enqueue(customer=7)
    assert one.options(idempotency_key="a").enqueue(customer=7).outcome is KEPT
    run(conn, protocol.commit(claim(conn)))
    second = one.options(idempotency_key="a").enqueue(customer=7)
    assert (second.outcome, second.job_id != first.job_id) == (QUEUED, True)


def test_a_replaced_payload_still_matches_its_idempotency_key(sync: Task[..., Any]) -> None:
    one = sync.options(unique=unique(on_conflict="replace"))
    first = one.options(idempotency_key="a").enqueue(customer=7, note="a")
    one.enqueue(customer=7, note="b")
    again = one.options(idempotency_key="a").enqueue(customer=7, note="a")
    assert (again.outcome, again.job_id) == (EXISTING, first.job_id)


# ── operators ────────────────────────────────────────────────────────────────────────────────────


def failed(app: Faultline, task: Any, **arguments: Any) -> Any:
    job_id = task.enqueue(**arguments).job_id
    app.cancel(job_id)
    return job_id


def test_a_retry_takes_the_key_again(app: Faultline, sync: Task[..., Any]) -> None:
    one = sync.options(unique=unique())
    first = failed(app, one, customer=7)
    second = failed(app, one, customer=7)
    assert app.retry(first) is JobState.QUEUED
    assert one.enqueue(customer=7).job_id == first
    with pytest.raises(UniqueKeyHeld) as refused:
        app.retry(second)
    assert refused.value.job_id == str(first)
    assert "'sync {\"customer\": 7}'" in refused.value.message


def test_a_queued_key_is_needed_only_by_a_job_without_a_claim(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(while_="queued"))
    claimed = one.enqueue(customer=7).job_id
    claim(conn)
    app.cancel(claimed)
    never_claimed = failed(app, one, customer=7)
    one.enqueue(customer=7)
    assert app.retry(claimed) is JobState.QUEUED
    with pytest.raises(UniqueKeyHeld):
        app.retry(never_claimed)


def test_retries_of_many_jobs_refuse_those_whose_key_is_held(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique())
    held = failed(app, one, customer=7)
    holder = one.enqueue(customer=7).job_id
    older, newer = failed(app, one, customer=8), failed(app, one, customer=8)
    plain = failed(app, sync, customer=7)
    report = app.jobs(state=JobState.FAILED).retry()
    assert (report.done, report.refused) == (2, 2)
    states = {each: app.get(each).state for each in (held, holder, older, newer, plain)}
    assert states == {
        held: JobState.FAILED,
        holder: JobState.QUEUED,
        older: JobState.FAILED,
        newer: JobState.QUEUED,
        plain: JobState.QUEUED,
    }


def test_cancel_and_delete_free_an_unfinished_key(app: Faultline, sync: Task[..., Any]) -> None:
    one = sync.options(unique=unique())
    failed(app, one, customer=7)
    second = one.enqueue(customer=7)
    assert second.outcome is QUEUED
    app.delete(second.job_id)
    assert one.enqueue(customer=7).outcome is QUEUED


def test_a_cancel_keeps_a_window_and_a_delete_ends_it(
    app: Faultline, sync: Task[..., Any], conn: Connection
) -> None:
    one = sync.options(unique=unique(for_=3600))
    job_id = failed(app, one, customer=7)
    assert one.enqueue(customer=7).job_id == job_id
    app.delete(job_id)
    assert one.enqueue(customer=7).outcome is QUEUED


def test_an_edit_keeps_the_key_of_the_enqueue(app: Faultline, sync: Task[..., Any]) -> None:
    one = sync.options(unique=unique())
    job_id = one.enqueue(customer=7).job_id
    app.edit(job_id, {"customer": 8})
    assert one.enqueue(customer=7).job_id == job_id
    assert one.enqueue(customer=8).outcome is QUEUED


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": "customer"}, r"not a string \(by=\('customer',\)\)"),
        ({"by": (1,)}, "a name that is not a string"),
        ({"while_": "queud"}, r"while_ must be .* not 'queud' \(did you mean queued\?\)"),
        ({"on_conflict": "replaced"}, r"did you mean replace\?"),
        ({"on_conflict": None}, "on_conflict must be"),
        ({"for_": 0}, "for_ must be at least"),
        ({"for_": timedelta(days=400)}, "at most 31,536,000 seconds"),
        ({"for_": float("nan")}, "for_ must be at least"),
        ({"for_": "1h"}, "seconds or a timedelta, not a str"),
    ],
)
def test_a_wrong_unique_is_refused_where_it_is_written(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Unique(**given)


def test_an_unknown_argument_is_refused_at_the_definition(
    app: Faultline, sync: Task[..., Any]
) -> None:
    with pytest.raises(InvalidInput, match=r"by 'custmer'.*did you mean customer\?"):

        @app.task(name="bad", unique=Unique(by=("custmer",)))
        def bad(job: Job, customer: int) -> None: ...

    with pytest.raises(InvalidInput, match="not an argument of the task"):
        sync.options(unique=Unique(by=("job",)))
    with pytest.raises(InvalidInput, match=r"faultline\.Unique, not a dict"):
        sync.options(unique={"by": ["customer"]})  # type: ignore[arg-type]


def test_a_default_that_json_cannot_hold_is_refused_at_the_definition(app: Faultline) -> None:
    def handler(job: Job, customer: Any = object) -> None: ...

    with pytest.raises(InvalidInput, match="defaults of unique jobs"):
        app.task(name="bad", unique=Unique())(handler)


def test_defaults_of_rich_types_are_compared_as_json(app: Faultline) -> None:
    @app.task(name="dated", unique=Unique())
    def dated(job: Job, day: date = date(2030, 1, 1)) -> None: ...

    assert dated.enqueue().outcome is QUEUED
    assert dated.enqueue(day=date(2030, 1, 1)).outcome is KEPT
    assert dated.enqueue(day=date(2030, 1, 2)).outcome is QUEUED


@pytest.mark.parametrize(
    "described",
    [
        '"x"',
        '{"bye": ["a"]}',
        '{"by": "a"}',
        '{"by": ["b"]}',
        '{"by": [1]}',
        '{"while": "always"}',
        '{"on_conflict": "drop"}',
        '{"for": 0}',
        '{"for": "1"}',
        '{"for": 1e300}',
        "null",
    ],
)
def test_sql_refuses_a_unique_that_cannot_be_meant(conn: Connection, described: str) -> None:
    with pytest.raises(Exception, match="job 1: unique"):
        conn.execute(
            "SELECT faultline.enqueue_jobs(%s::jsonb)",
            [f'[{{"task": "t"}}, {{"task": "t", "payload": {{"a": 1}}, "unique": {described}}}]'],
        )


@pytest.mark.parametrize("payload", ["[1]", '{"a": [' + "1e131000," * 80 + "1]}"])
def test_a_payload_that_cannot_be_stored_has_no_key(conn: Connection, payload: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute(
            "SELECT faultline.enqueue_jobs(%s::jsonb)",
            [f'[{{"task": "t", "payload": {payload}, "unique": {{}}}}]'],
        )
    assert refused.value.sqlstate in ("23514", "FL005")


def test_sql_enqueues_unique_jobs(conn: Connection) -> None:
    job = '{"task": "t", "payload": {"a": 1, "b": 2}, "unique": {"by": ["a"]}}'
    outcomes = [
        conn.execute(
            "SELECT outcome FROM faultline.enqueue_jobs(%s::jsonb)", [f"[{job}]"]
        ).fetchone()
        for _ in range(2)
    ]
    assert outcomes == [("queued",), ("kept",)]
