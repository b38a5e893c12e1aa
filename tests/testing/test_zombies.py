"""`zombies` accepts correct handlers and rejects incorrect ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, Snooze
from faultline.testing import (
    ALL_FAULTS,
    Fault,
    NotExercised,
    Outside,
    PointKind,
    Verdict,
    ZombieEffect,
    ZombieReport,
    zombies,
)

from . import handlers
from .handlers import ARGS, INSERT, Make, paid_once

# Each test makes dozens of runs with new workers, which is slow on a busy machine.
pytestmark = pytest.mark.timeout(300)


def violated(app: Faultline, make: Make, *faults: Fault, **options: Any) -> ZombieReport:
    options.setdefault("invariant", paid_once)
    with pytest.raises(ZombieEffect) as found:
        zombies(app, make(app), ARGS, faults=faults, **options)
    return found.value.report


def failing(report: ZombieReport) -> set[tuple[str, str]]:
    return {(str(run.fault), run.point.what) for run in report.violations}


# ── correct handlers ─────────────────────────────────────────────────────────────────────────────


def test_a_handler_that_writes_in_its_jobs_transaction_survives_every_fault(
    app: Faultline, payments: str
) -> None:
    report = zombies(app, handlers.in_a_transaction(app), ARGS, invariant=paid_once)
    assert [(point.kind, point.what) for point in report.points] == [
        (PointKind.AWAIT, "await sleep()"),
        (PointKind.DATABASE, "faultline.open_transaction()"),
        (PointKind.DATABASE, "INSERT INTO payments VALUES (%s, %s)"),
        (PointKind.DATABASE, "COMMIT"),
        (PointKind.END, "the handler has returned"),
    ]
    assert all(report.injected[fault] == 5 for fault in ALL_FAULTS[:-1])
    assert report.injected[Fault.LOST_ANSWER] == 1
    # All but those at the end, where the job has succeeded, and the lost reply.
    assert report.takeovers == 4 * 4
    assert report.refusals > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "faults"),
    [
        (handlers.in_a_transaction_of_a_plain_handler, (Fault.PAUSE, Fault.LOST_ANSWER)),
        (
            handlers.on_its_own_connection_with_a_fenced_commit,
            (Fault.SUPERSEDE, Fault.LOST_ANSWER),
        ),
        (handlers.in_fenced_steps, (Fault.CRASH,)),
        (handlers.in_one_message, ALL_FAULTS),
        (handlers.in_one_message_of_a_plain_handler, ALL_FAULTS),
        (handlers.that_connects_again, (Fault.PARTITION,)),
    ],
)
def test_other_correct_handlers_survive_their_faults(
    app: Faultline, payments: str, make: Make, faults: tuple[Fault, ...]
) -> None:
    report = zombies(app, make(app), ARGS, invariant=paid_once, faults=faults)
    assert {run.fault for run in report.runs} == set(faults)
    assert report.takeovers > 0


@pytest.mark.slow
def test_an_outside_call_with_the_jobs_key_has_one_effect(app: Faultline) -> None:
    bank = Outside("bank")

    def charged_once(conn: psycopg.Connection[Any]) -> bool:
        return bank.effects == ["charge 42"]

    report = zombies(
        app,
        handlers.by_a_call_with_a_key(bank)(app),
        ARGS,
        invariant=charged_once,
        arrange=lambda conn: bank.reset(),
        faults=["crash", "pause"],
    )
    assert [str(point.kind) for point in report.points] == ["outside", "end"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [handlers.with_a_cleanup, handlers.with_a_cleanup_in_a_plain_handler]
)
def test_after_a_crash_no_finally_block_runs(
    app: Faultline, make: Callable[[Outside], Make]
) -> None:
    bank = Outside("bank")

    report = violated(
        app,
        make(bank),
        Fault.CRASH,
        invariant=lambda conn: bank.effects == ["clean up"],
        arrange=lambda conn: bank.reset(),
    )
    # After a crash at its end the first attempt has cleaned up, and the second does so again.
    assert [run.point.kind for run in report.violations] == [PointKind.END]
    assert len(report.runs) >= 3


@pytest.mark.slow
def test_jobs_that_the_handler_enqueues_run_and_enqueueing_is_a_point(
    app: Faultline, payments: str
) -> None:
    def thanked_once(conn: psycopg.Connection[Any]) -> bool:
        return conn.execute("SELECT count(*) FROM steps").fetchall() == [(1,)]

    task = handlers.with_a_follow_up_under_a_key(app)
    report = zombies(app, task, ARGS, invariant=thanked_once, faults=[Fault.CRASH, Fault.PARTITION])
    assert [point.what for point in report.points] == [
        "faultline.enqueue()",
        "faultline.enqueue()",
        "the handler has returned",
    ]


@pytest.mark.slow
def test_a_stopped_worker_is_resumed_when_another_waits_for_its_lock(
    app: Faultline, payments: str
) -> None:
    with psycopg.connect(app.database_url) as conn:
        conn.execute("CREATE UNIQUE INDEX ON payments (invoice)")
    task = handlers.on_its_own_connection_with_a_fenced_commit(app)
    report = zombies(app, task, ARGS, invariant=paid_once, faults=[Fault.PAUSE])
    waited = [run for run in report.runs if "B waits for a lock that A holds" in str(run.story)]
    assert [run.point.what for run in waited] == ["faultline.commit()"]
    assert all(run.refusals == 1 for run in waited)


@pytest.mark.slow
def test_a_handler_that_ignores_the_loss_of_its_database_is_ended_by_its_worker(
    app: Faultline, payments: str
) -> None:
    with psycopg.connect(app.database_url) as conn:
        conn.execute("CREATE UNIQUE INDEX ON payments (invoice)")
    task = handlers.that_ignores_a_lost_database(app)
    report = zombies(app, task, ARGS, invariant=paid_once, faults=[Fault.PARTITION])
    ended = [run for run in report.runs if "ends its attempt" in str(run.story)]
    assert [run.point.kind for run in ended] == [PointKind.DATABASE] * 3
    assert all("ends in CancelledError" in str(run.story) for run in ended)


# ── incorrect handlers ───────────────────────────────────────────────────────────────────────────


def test_a_write_outside_of_the_fence_is_found_and_its_run_is_logged(
    app: Faultline, payments: str
) -> None:
    report = violated(app, handlers.outside_of_the_fence, *ALL_FAULTS)
    insert, end = "INSERT INTO payments VALUES (%s, %s)", "the handler has returned"
    assert failing(report) == {
        ("pause", insert),
        ("supersede", insert),
        ("pause", "COMMIT"),
        ("supersede", "COMMIT"),
        ("lost_answer", "COMMIT"),
        ("crash", end),
        ("pause", end),
        ("supersede", end),
        ("partition", end),
    }
    held = {(run.fault, run.point.what) for run in report.runs if run.verdict is Verdict.HELD}
    assert (Fault.CRASH, "COMMIT") in held  # nothing was committed, so this is no violation

    text, line = str(report), report.points[0].where
    assert text.startswith("pay: 9 violations in 13 runs over 3 points (crash 3, pause 3,")
    assert f"1. {line}  {insert} ok    FAIL  FAIL      ok        -\n" in text
    assert "crash when its handler has returned:" in text  # the shortest of the nine logs
    assert text.index("A is killed") < text.index("B token 2  begins") < text.index("violated:")
    assert text.endswith("violated: invoice 42 was paid 2 times")


@pytest.mark.slow
def test_a_write_after_a_swallowed_refusal_is_found(app: Faultline, payments: str) -> None:
    report = violated(app, handlers.after_swallowing_the_refusal, Fault.PAUSE)
    assert ("pause", "faultline.open_transaction()") in failing(report)
    late = str(report.violations[0].story).rpartition("A resumes")[2].splitlines()
    assert any("A token 1" in line and "INSERT" in line for line in late)


@pytest.mark.slow
def test_an_effect_that_commits_before_the_job_is_found(app: Faultline, payments: str) -> None:
    report = violated(app, handlers.with_two_commits, Fault.CRASH)
    assert ("crash", "INSERT INTO steps VALUES ('told')") in failing(report)
    assert ("crash", "INSERT INTO payments VALUES (%s, %s)") not in failing(report)


@pytest.mark.slow
def test_an_outside_call_without_a_key_is_found(app: Faultline) -> None:
    bank = Outside("bank")

    def charged_once(conn: psycopg.Connection[Any]) -> None:
        assert len(bank.effects) == 1, f"the bank charged {len(bank.effects)} times"

    report = violated(
        app,
        handlers.by_a_call_without_a_key(bank),
        Fault.CRASH,
        Fault.PARTITION,
        invariant=charged_once,
        arrange=lambda conn: bank.reset(),
    )
    end = "the handler has returned"
    # A partition before the call does not prevent it: the call needs no database.
    assert failing(report) == {
        ("crash", end),
        ("partition", end),
        ("partition", "bank: charge 42"),
    }


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_may_have_arguments_named_like_those_of_its_wrapper(
    app: Faultline, payments: str, kind: str
) -> None:
    scope: dict[str, Any] = {"INSERT": INSERT}
    prefix, wait = ("async ", "await ") if kind == "async def" else ("", "")
    program = f"{kind} pay(ctx, job, args, self):\n    {prefix}with ctx.transaction() as tx:\n"
    exec(f"{program}        {wait}tx.execute(INSERT, [job, ctx.token])", scope)  # noqa: S102
    task = app.task(name="pay")(scope["pay"])
    given = {"job": ARGS["invoice"], "args": 1, "self": 2}
    report = zombies(app, task, given, invariant=paid_once, faults=[Fault.CRASH])
    assert not report.violations


def test_a_handler_that_reports_progress_has_no_more_points(app: Faultline, payments: str) -> None:
    @app.task(name="shop.reports")
    def reports(job: Job, invoice: int) -> None:
        job.progress(0.5, "half")
        with job.transaction() as tx:
            tx.execute("INSERT INTO payments VALUES (%s, %s)", [invoice, job.token])

    report = zombies(app, reports, ARGS, invariant=paid_once)
    assert [point.kind for point in report.points] == [
        *[PointKind.DATABASE] * 3,
        PointKind.END,
    ]


def test_a_handler_that_snoozes_without_a_fault_proves_nothing(
    app: Faultline, payments: str
) -> None:
    @app.task(name="shop.snoozes")
    def snoozes(job: Job, invoice: int) -> None:
        raise Snooze(seconds=1)

    with pytest.raises(NotExercised, match="snoozed its job without a fault"):
        zombies(app, snoozes, ARGS, invariant=lambda conn: None, must_succeed=False)


def test_a_fault_that_makes_a_handler_snooze_is_survived(app: Faultline, payments: str) -> None:
    @app.task(name="shop.polite")
    def polite(job: Job, invoice: int) -> None:
        if job.token == 2:
            raise Snooze(seconds=1, reason="not so soon")
        with job.transaction() as tx:
            tx.execute("INSERT INTO payments VALUES (%s, %s)", [invoice, job.token])

    assert zombies(app, polite, ARGS, invariant=paid_once).violations == ()
