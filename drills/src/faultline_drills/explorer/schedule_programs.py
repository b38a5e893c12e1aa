"""Explored programs about schedules: several schedulers fire the same times."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import LiteralString

from faultline.model import JobSpec
from faultline.postgres.sessions import run
from faultline.reconciler.scheduler import Scheduler, decide
from faultline.schedules import make_schedule
from faultline.statements import firing, schedules
from faultline_drills.explorer import actors
from faultline_drills.explorer.program_execution import QUEUE, ProgramExecution
from faultline_drills.explorer.programs import program, works
from faultline_drills.explorer.schedule_rules import MISSED, NAME
from faultline_drills.explorer.worker_actor import (
    SteppedReconnectingSession,
    WorkerActor,
    in_job_transaction,
    run_to_completion,
)

EVERY = timedelta(days=1)
_JOB = JobSpec("explored", QUEUE, 5, 5, None, None, None, None, None, None, None, {"parts": 1})
_MISS: LiteralString = """
    UPDATE faultline.schedules SET next_fire_at = %s, decided_until = %s WHERE name = %s
"""


def put_schedule(
    execution: ProgramExecution, *, every: timedelta = EVERY, missed: str = "all"
) -> None:
    """Add a schedule of which three times are due; the next one is far away."""
    setup = execution.database.setup
    ((now,),) = setup.execute("SELECT date_trunc('second', clock_timestamp())").fetchall()
    newest = now - timedelta(hours=1)
    first = newest - (MISSED - 1) * every
    schedule = make_schedule(_JOB, None, every=every, anchor=newest, name=NAME, missed=missed)
    run(setup, schedules.add(schedule.definition))
    setup.execute(_MISS, [first, first - timedelta(seconds=1), NAME])


def add_scheduler(execution: ProgramExecution, name: str, *, looks: int = 1) -> None:
    """The reconciler's own scheduler, which looks once or more often."""

    def act() -> None:
        scheduler = Scheduler("")
        scheduler._session = SteppedReconnectingSession(execution.session(name), "scheduler")
        for _ in range(looks):
            run_to_completion(scheduler.look())

    execution.add(name, act)
    execution.session(name)


def add_slow_scheduler(execution: ProgramExecution, name: str) -> None:
    """A scheduler that fires in a transaction which stays open for a while."""

    def act() -> None:
        conn = session.connection()
        found = run(conn, firing.due_schedules(limit=10))
        with conn.transaction():
            for schedule in found.due:
                if schedule.next_fire_at is None:
                    continue
                decision = decide(schedule, found.now)
                fired = run(
                    conn,
                    firing.fire(
                        schedule,
                        decision.planned,
                        next_fire_at=decision.next_fire_at,
                        skipped=decision.skipped,
                        newest_skipped=decision.newest_skipped,
                    ),
                )
                permit.note("nothing" if fired is None else f"fired {len(fired.times)}")

    permit = execution.add(name, act)
    session = execution.session(name)


def add_schedule_operator(
    execution: ProgramExecution, *verbs: str, in_transaction: bool = False
) -> None:
    """An operator that changes the schedule's times, pauses it, or runs it now."""

    def send(verb: str) -> None:
        conn = session.connection()
        if verb == "run-now":
            run(conn, schedules.run_now(NAME))
            execution.counts["manual_firings"] += 1
        elif verb == "pause":
            run(conn, schedules.pause(NAME))
        elif verb == "resume":
            run(conn, schedules.resume(NAME))
        else:
            schedule = make_schedule(_JOB, None, every=EVERY / 2, name=NAME, missed="all")
            run(conn, schedules.add(schedule.definition, replace=True))

    def act() -> None:
        for verb in verbs:
            conn = session.connection()
            with conn.transaction() if in_transaction else nullcontext():
                send(verb)

    execution.add("schedule-operator", act)
    session = execution.session("schedule-operator")


@program
def schedule_race(execution: ProgramExecution) -> None:
    """Three schedulers find the same three missed times, one of them is slow."""
    put_schedule(execution)
    add_scheduler(execution, "s1", looks=2)
    add_slow_scheduler(execution, "s2")
    add_scheduler(execution, "s3")


@program
def schedule_crash(execution: ProgramExecution) -> None:
    """A scheduler is killed at any step while another one looks."""
    put_schedule(execution, missed="once")
    add_slow_scheduler(execution, "s1")
    actors.add_killer(execution, ["s1"])
    add_scheduler(execution, "s2", looks=2)
    WorkerActor(execution, "w1", works(in_job_transaction))


@program
def schedule_change(execution: ProgramExecution) -> None:
    """An operator changes the times while two schedulers fire the former ones."""
    put_schedule(execution)
    add_slow_scheduler(execution, "s1")
    add_scheduler(execution, "s2", looks=2)
    add_schedule_operator(execution, "change", in_transaction=True)


@program
def schedule_run_now(execution: ProgramExecution) -> None:
    """An operator runs, pauses and resumes a schedule while it fires."""
    put_schedule(execution)
    add_slow_scheduler(execution, "s1")
    add_scheduler(execution, "s2")
    add_schedule_operator(execution, "run-now", "pause", "resume", in_transaction=True)
