"""cancel_many, retry_many, delete_many and edit_many report each job."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from faultline.model import JobState
from faultline.postgres.sessions import run
from faultline.statements import job_pages, many_jobs
from faultline.statements.invariants import INVARIANTS, check
from faultline.statements.job_filter import JobFilter
from faultline.statements.many_jobs import JobSweep, ManyAction

from .steps import (
    Connect,
    Connection,
    all_at_once,
    cancel,
    channel_of,
    claim,
    claim_batch,
    claim_new,
    commit,
    committed,
    enqueue,
    enqueue_many,
    job,
    logged,
    never_waits,
    refused,
    rows,
    set_job,
    state,
    value,
)

ACTIONS = ("cancel_many", "retry_many", "delete_many", "edit_many")
AUDIT = "SELECT action, object, result, detail FROM faultline.audit_log ORDER BY id"


def act(conn: Connection, name: str, *job_ids: UUID, **wanted: Any) -> dict[UUID, str]:
    call = f"SELECT job_id, outcome FROM {called(name)}"
    return dict(rows(conn, call, list(job_ids), json.dumps(wanted)))


def called(name: str) -> str:
    changes = ", changes => '{\"edited\": true}'" if name == "edit_many" else ""
    return f"faultline.{name}(job_ids => %s, wanted => %s::jsonb{changes})"


def in_each_state(conn: Connection) -> dict[str, UUID]:
    done, running = committed(conn).job_id, claim_new(conn).job_id
    failed, _ = enqueue(conn)
    cancel(conn, failed)
    queued, _ = enqueue(conn)
    return {"succeeded": done, "running": running, "failed": failed, "queued": queued}


def violations(conn: Connection) -> list[Any]:
    return [found for invariant in INVARIANTS for found in run(conn, check(invariant))]


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "cancel_many",
            {"queued": "done", "running": "done", "failed": "unchanged", "succeeded": "unchanged"},
        ),
        (
            "retry_many",
            {
                "failed": "done",
                "queued": "unchanged",
                "running": "unchanged",
                "succeeded": "refused",
            },
        ),
        (
            "delete_many",
            {"queued": "done", "failed": "done", "running": "refused", "succeeded": "refused"},
        ),
        (
            "edit_many",
            {"queued": "done", "failed": "done", "running": "refused", "succeeded": "refused"},
        ),
    ],
)
def test_each_state_has_its_outcome(conn: Connection, name: str, expected: dict[str, str]) -> None:
    jobs, unknown = in_each_state(conn), uuid4()
    found = act(conn, name, *jobs.values(), unknown, unknown)
    assert found.pop(unknown) == "gone"
    assert {state: found[job_id] for state, job_id in jobs.items()} == expected
    assert violations(conn) == []


def test_cancelled_jobs_have_a_reason_and_a_log_as_from_cancel(conn: Connection) -> None:
    running, (queued, _) = claim_new(conn), enqueue(conn)
    call = "SELECT outcome, state FROM faultline.cancel_many(%s, 'a mistake') ORDER BY state"
    assert rows(conn, call, [running.job_id, queued]) == [("done", "queued"), ("done", "running")]
    for job_id, attempt in ((running.job_id, 1), (queued, 0)):
        stored = job(conn, job_id)
        assert (stored["failed_reason"], stored["last_error"]) == ("cancelled", "a mistake")
        [entry] = logged(conn, job_id)
        assert (entry[0], entry[3], entry[4]) == (attempt, "cancelled", "a mistake")
    with refused("FL001", reason="not_running"):
        commit(conn, running)


def test_retried_jobs_continue_from_their_token_with_all_attempts(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    assert act(conn, "retry_many", lease.job_id) == {lease.job_id: "done"}
    assert job(conn, lease.job_id)["attempts"] == 0
    assert claim(conn).token == lease.token + 1
    with refused("FL001", reason="token_mismatch"):
        commit(conn, lease)


def test_retried_jobs_wake_a_worker_of_each_of_their_queues(
    conn: Connection, connect: Connect
) -> None:
    ids = [enqueue(conn, queue=queue)[0] for queue in ("one", "one", "two")]
    act(conn, "cancel_many", *ids)
    listener = connect()
    for queue in ("one", "two"):
        listener.execute(f'LISTEN "{channel_of(queue)}"')
        listener.execute("SELECT faultline.announce_idle(%s, %s)", [queue, [queue]])
    act(conn, "retry_many", *ids)
    told = [notice.payload for notice in listener.notifies(timeout=10, stop_after=2)]
    assert sorted(told) == ["one", "two"]


def test_deleted_jobs_take_their_history_along_and_free_their_keys(conn: Connection) -> None:
    job_id, _ = enqueue(conn, idempotency_key="k")
    cancel(conn, job_id)
    act(conn, "delete_many", job_id)
    assert logged(conn, job_id) == []
    assert enqueue(conn, idempotency_key="k")[1] is False


@pytest.mark.parametrize("name", ACTIONS)
def test_locked_rows_are_skipped_and_reported(
    conn: Connection, connect: Connect, name: str
) -> None:
    busy, free = (enqueue(conn)[0] for _ in range(2))
    if name == "retry_many":
        act(conn, "cancel_many", busy, free)
    before = state(conn, busy)
    holder = connect()
    holder.execute("BEGIN")
    holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [busy])
    assert act(never_waits(conn), name, busy, free) == {busy: "locked", free: "done"}
    holder.execute("ROLLBACK")
    assert state(conn, busy) == before


# ── the filter ───────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_stopped_matching_is_left_alone(conn: Connection) -> None:
    job_id, _ = enqueue(conn, queue="mail")
    for wanted in ({"queue": "billing"}, {"state": "failed"}, {"error": "Boom"}, {"task": "other"}):
        assert act(conn, "delete_many", job_id, **wanted) == {job_id: "gone"}
    assert act(conn, "delete_many", job_id, queue="mail", state="queued") == {job_id: "done"}


def test_the_filter_is_checked_on_the_row_that_was_locked(
    conn: Connection, connect: Connect
) -> None:
    """The job fails again between the reading of a page and the action on it."""
    lease = claim_new(conn, max_attempts=1)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'Timeout: slow')", lease)
    operator = connect()
    operator.execute("BEGIN")
    operator.execute("DECLARE page CURSOR FOR SELECT id FROM faultline.jobs WHERE state = 'failed'")
    conn.execute("SELECT faultline.retry(%s)", [lease.job_id])
    again = claim(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'CardDeclined: no')", again)
    assert operator.execute("FETCH page").fetchone() == (lease.job_id,)
    found = act(operator, "delete_many", lease.job_id, state="failed", error="Timeout")
    assert found == {lease.job_id: "gone"}
    operator.execute("COMMIT")
    assert state(conn, lease.job_id) == "failed"


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("wanted", [{"stat": "failed"}, [], "x", None])
def test_a_filter_that_is_misspelt_or_no_object_is_refused(
    conn: Connection, name: str, wanted: Any
) -> None:
    job_id, _ = enqueue(conn)
    call = f"SELECT {called(name)}"
    with refused("FL005"):
        conn.execute(call, [[job_id], json.dumps(wanted)])
    assert state(conn, job_id) == "queued"


def test_too_many_ids_at_once_are_refused(conn: Connection) -> None:
    with refused("FL005"):
        act(conn, "retry_many", *[uuid4()] * 10_001)


def test_a_null_in_a_filter_matches_no_job(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    assert act(conn, "delete_many", job_id, state=None) == {job_id: "gone"}


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
FILTERS = [
    JobFilter(),
    *(JobFilter(state) for state in JobState),
    *(JobFilter(queue="mail"), JobFilter(task="report"), JobFilter(error="Boom")),
    *(JobFilter(tag="vip"), JobFilter(JobState.FAILED, tag="mail"), JobFilter(tag="none")),
    *(JobFilter(failed_reason="cancelled"), JobFilter(JobState.FAILED, error="Boom")),
    *(
        JobFilter(state, **{name: MOMENT + timedelta(days=day)})
        for state in (None, JobState.FAILED, JobState.SUCCEEDED)
        for name in ("created_after", "created_before", "finished_after", "finished_before")
        for day in (0, 1)
    ),
    JobFilter(
        JobState.FAILED, "mail", finished_after=MOMENT, finished_before=MOMENT + timedelta(1)
    ),
]


def of_all_kinds(conn: Connection) -> list[UUID]:
    """Jobs that differ in what filters look at; each time is days after MOMENT."""
    for queue, task, error, reason, days in itertools.product(
        ("mail", "default"), ("report", "send"), ("Boom: x", "Other"), ("cancelled", None), (0, 1)
    ):
        job_id, _ = enqueue(conn, task=task, queue=queue)
        moment = MOMENT + timedelta(days=days)
        if reason is not None:
            cancel(conn, job_id)
            set_job(conn, job_id, f"finished_at = '{moment.isoformat()}', last_error = '{error}'")
        conn.execute("SET session_replication_role = replica")  # an id of that time
        conn.execute(
            "UPDATE faultline.jobs SET created_at = %s, id = faultline.uuid7(%s), tags = %s WHERE id = %s",
            [moment, moment, [queue, "vip"] if days else None, job_id],
        )
        conn.execute("SET session_replication_role = origin")
    return [job_id for (job_id,) in rows(conn, "SELECT id FROM faultline.jobs")]


def test_the_pages_and_the_functions_agree_on_what_a_filter_matches(conn: Connection) -> None:
    ids = of_all_kinds(conn)
    assert len(ids) == 32
    seen = set()
    for wanted in FILTERS:
        paged, sweep = set(), JobSweep(wanted, page_size=5)
        while not sweep.is_finished:
            page = run(conn, sweep.page)
            assert paged.isdisjoint(page.ids)
            paged.update(page.ids)
            sweep.advance(page)
        matched = "SELECT id FROM faultline.jobs AS j WHERE faultline.matches(j, %s::jsonb)"
        assert paged == {job_id for (job_id,) in rows(conn, matched, wanted.json)}, wanted
        seen.add(frozenset(paged))
    assert len(seen) > 10


def test_a_filter_by_ids_reads_those_jobs(conn: Connection) -> None:
    ids = tuple(enqueue(conn)[0] for _ in range(3))
    page = run(conn, job_pages.id_page(JobFilter(ids=ids[:2]), limit=10))
    assert (page.ids, page.next) == ([ids[1], ids[0]], None)


# ── sweeps ───────────────────────────────────────────────────────────────────────────────────────


def swept(conn: Connection, sweep: JobSweep) -> JobSweep:
    while not sweep.is_finished:
        page = run(conn, sweep.page)
        if page.ids:
            sweep.add(run(conn, sweep.act(page.ids)))
        sweep.advance(page)
    return sweep


def test_a_sweep_reaches_every_job_page_by_page(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 23)
    for action, count in (
        (ManyAction.CANCEL, 23),
        (ManyAction.EDIT, 23),
        (ManyAction.RETRY, 23),
        (ManyAction.CANCEL, 23),
        (ManyAction.DELETE, 23),
    ):
        wanted, changes = JobFilter(queue="default"), '{"edited": true}'
        sweep = swept(conn, JobSweep(wanted, action, changes=changes, page_size=4))
        assert sweep.report == many_jobs.ActionReport(done=count)
    assert value(conn, "SELECT count(*) FROM faultline.jobs") == 0


def test_a_sweep_continues_from_the_cursor_of_another(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 10)
    claim_batch(conn, 5)
    done, cursor = 0, None
    for _ in range(20):
        sweep = JobSweep(JobFilter(queue="default"), ManyAction.CANCEL, page_size=3, cursor=cursor)
        page = run(conn, sweep.page)
        if page.ids:
            sweep.add(run(conn, sweep.act(page.ids)))
        sweep.advance(page)
        done, cursor = done + sweep.report.done, sweep.cursor
        if cursor is None:
            break
    assert (done, cursor) == (10, None)


# ── beside workers ───────────────────────────────────────────────────────────────────────────────


def test_no_running_job_is_deleted_while_workers_claim(conn: Connection, connect: Connect) -> None:
    """Every job is committed by the worker that claimed it, or deleted: never both."""
    enqueue_many(conn, [{}] * 400)

    def work(session: Connection) -> tuple[int, int]:
        done = 0
        while leases := claim_batch(session, 7):
            for lease in leases:
                commit(session, lease)  # would raise unknown_job for a job that was deleted
                done += 1
        return done, 0

    def operate(session: Connection) -> tuple[int, int]:
        wanted = JobFilter(queue="default")
        return 0, swept(session, JobSweep(wanted, ManyAction.DELETE, page_size=10)).report.done

    sessions = [connect() for _ in range(4)]
    roles = dict(zip(sessions, (work, work, work, operate), strict=True))
    counts = all_at_once(sessions, lambda session: roles[session](session))
    committed_jobs, deleted = (sum(column) for column in zip(*counts, strict=True))
    assert committed_jobs + deleted == 400
    assert value(conn, "SELECT count(*) FROM faultline.ledger") == committed_jobs
    assert value(conn, "SELECT count(*) FROM faultline.jobs") == committed_jobs
    assert violations(conn) == []


def test_operators_that_act_on_the_same_jobs_do_not_deadlock(
    conn: Connection, connect: Connect
) -> None:
    ids = [job_id for job_id, _ in enqueue_many(conn, [{}] * 100)]

    def operate(session: Connection) -> int:
        done = 0
        for turn in range(6):
            order = ids if turn % 2 else ids[::-1]
            name = "cancel_many" if turn % 3 else "retry_many"
            found = act(session, name, *order)
            done += list(found.values()).count("done")
        return done

    done = all_at_once([connect() for _ in range(4)], operate)
    counted = "SELECT count(*) FROM faultline.attempts_log"
    assert sum(done) == value(conn, counted)
    assert violations(conn) == []


# ── the audit log ────────────────────────────────────────────────────────────────────────────────


def test_each_call_is_one_row_of_the_audit_log_with_filter_and_counts(conn: Connection) -> None:
    first, second = enqueue(conn)[0], enqueue(conn)[0]
    conn.execute(
        "SELECT faultline.cancel_many(%s, 'a mistake', '{\"queue\": \"default\"}')", [[first]]
    )
    act(conn, "retry_many", first, second)
    act(conn, "delete_many", uuid4())
    act(conn, "delete_many")
    assert rows(conn, AUDIT) == [
        ("cancel", 'jobs {"queue": "default"}', "done", "1 done: a mistake"),
        ("retry", "jobs", "done", "1 done, 1 unchanged"),
        ("delete", "jobs", "unchanged", "1 gone"),
    ]


@pytest.mark.parametrize("name", ACTIONS)
def test_a_snapshot_that_is_too_old_is_refused(
    conn: Connection, connect: Connect, name: str
) -> None:
    job_id, _ = enqueue(conn)
    operator = connect()
    operator.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    operator.execute("SELECT count(*) FROM faultline.jobs")
    claim(conn)
    with pytest.raises(psycopg.errors.SerializationFailure):
        act(operator, name, job_id)
    operator.execute("ROLLBACK")
    assert state(conn, job_id) == "running"
