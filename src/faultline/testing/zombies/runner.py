"""Runs a handler with every fault at every point, and checks the user's invariant."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from faultline.app import Faultline
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import epochs
from faultline.task import Task
from faultline.testing.application import close_connections
from faultline.testing.databases import (
    administration,
    copy_database,
    drop_database,
    name_of,
    require_test_database,
    url_of,
)
from faultline.testing.zombies import database_control
from faultline.testing.zombies.asyncpg_sessions import patched_asyncpg
from faultline.testing.zombies.database_control import end_other_sessions
from faultline.testing.zombies.experiment import Experiment
from faultline.testing.zombies.instrumentation import patched_driver
from faultline.testing.zombies.monitor import PlannedFault
from faultline.testing.zombies.points import ALL_FAULTS, Fault, Point
from faultline.testing.zombies.report import (
    NotExercised,
    Run,
    Verdict,
    ZombieEffect,
    ZombieReport,
)

Arrange = Callable[[Connection], object]
Invariant = Callable[[Connection], object]


def zombies(
    app: Faultline,
    task: Task[Any, Any],
    args: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    *,
    invariant: Invariant,
    arrange: Arrange | None = None,
    faults: Sequence[Fault | str] = ALL_FAULTS,
    must_succeed: bool = True,
    max_runs: int = 500,
    run_limit_seconds: float = 20.0,
) -> ZombieReport:
    """Inject each fault at each point of the first attempt, and check `invariant`.

    `invariant` is called with a connection after the job has ended. It raises AssertionError or returns
    False if it is violated. Each run starts from the test's database as it is now; `arrange` is called with
    a connection before each run, to reset state outside of the database. For a task with a batch handler,
    `args` may be a list: the jobs of one batch, of which the first is taken over.

    Raises ZombieEffect, with a table and the log of a run, if a fault violates the invariant or keeps the
    job from succeeding; NotExercised if the runs could not be carried out.
    """
    __tracebackhide__ = True  # pytest shows the report at the caller's line
    if app.tasks.get(task.name) is not task:
        raise InvalidInput(f"{task.name} is not a task of this application")
    requested = tuple(Fault(fault) for fault in faults)
    runner = _Runner(
        app, task, _as_list(task, args), invariant, arrange, must_succeed, run_limit_seconds
    )
    with database_snapshot(app) as snapshot, patched_driver(), patched_asyncpg():
        points, answers = runner.find_points(snapshot)
        plan = [
            (p, f) for p in points for f in requested if f is not Fault.LOST_ANSWER or p in answers
        ]
        if len(plan) > max_runs:
            raise InvalidInput(
                f"{len(points)} points make {len(plan)} runs, more than max_runs={max_runs}",
                hint="pass fewer faults, raise max_runs, or shorten the handler",
            )
        runs = [runner.run(snapshot, point, fault) for point, fault in plan]
    report = ZombieReport(task.name, points, tuple(runs))
    _require_exercised(report, requested, explicit=requested != ALL_FAULTS)
    if report.violations:
        raise ZombieEffect(report)
    return report


def _require_exercised(report: ZombieReport, requested: Sequence[Fault], *, explicit: bool) -> None:
    if not report.runs:
        raise NotExercised(
            f"{report.task} has no point for {', '.join(requested)}: no fault was injected"
        )
    missed = [fault for fault in requested if not report.injected.get(fault)]
    if missed and (explicit or missed != [Fault.LOST_ANSWER]):
        raise NotExercised(f"{report.task} has no point for {', '.join(missed)}")
    if not report.takeovers and set(requested) - {Fault.LOST_ANSWER}:
        raise NotExercised(f"no run of {report.task} led to a second attempt")


def _as_list(
    task: Task[Any, Any], args: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    if args is None or isinstance(args, Mapping):
        return [dict(args or {})]
    batch = task.settings.batch
    if not args or batch is None or len(args) > batch.max_size:
        raise InvalidInput(
            f"zombies needs the arguments of one job of {task.name}, or of one batch of jobs",
            hint="a list is for a task with a batch handler, and has at most max_size jobs",
        )
    return [dict(each) for each in args]


class _Runner:
    def __init__(
        self,
        app: Faultline,
        task: Task[Any, Any],
        args: list[dict[str, Any]],
        invariant: Invariant,
        arrange: Arrange | None,
        must_succeed: bool,
        limit_seconds: float,
    ) -> None:
        self._app = app
        self._task = task
        self._args = args
        self._invariant = invariant
        self._arrange = arrange
        self._must_succeed = must_succeed
        self._limit_seconds = limit_seconds

    def find_points(self, snapshot: DatabaseSnapshot) -> tuple[tuple[Point, ...], frozenset[Point]]:
        """Run the job without a fault; return its points and those that end transactions."""
        with self._experiment(snapshot, None) as (experiment, conn, job_ids):
            experiment.run()
            first = experiment.first
            if first is None:
                raise NotExercised(f"{self._task.name} did not run")
            jobs = [database_control.job_snapshot(conn, job_id) for job_id in job_ids]
            job = jobs[0]
            if reason := self._violation(jobs):
                raise NotExercised(
                    f"{self._task.name} fails without a fault: {reason}\n{experiment.story}"
                )
            if job.attempts < job.token:
                raise NotExercised(
                    f"{self._task.name} snoozed its job without a fault\n{experiment.story}",
                    hint="arrange the data so that the handler does its work at once",
                )
            if job.token > 1:
                raise NotExercised(
                    f"{self._task.name} needed {job.token} attempts without a fault\n"
                    f"{experiment.story}"
                )
            return tuple(first.points), frozenset(first.answers)

    def run(self, snapshot: DatabaseSnapshot, point: Point, fault: Fault) -> Run:
        with self._experiment(snapshot, PlannedFault(point, fault)) as (experiment, conn, job_ids):
            experiment.run()
            jobs = [database_control.job_snapshot(conn, job_id) for job_id in job_ids]
            job = jobs[0]
            experiment.story.add(f"the end: {job.state}, token {job.token}")
            reason = self._violation(jobs)
            return Run(
                point=point,
                fault=fault,
                verdict=Verdict.VIOLATED if reason else Verdict.HELD,
                reason=reason,
                taken_over=job.token > 1,
                refusals=job.refusals,
                story=experiment.story,
            )

    @contextlib.contextmanager
    def _experiment(
        self, snapshot: DatabaseSnapshot, planned: PlannedFault | None
    ) -> Iterator[tuple[Experiment, Connection, list[UUID]]]:
        snapshot.restore()
        with connect(self._app.database_url, application_name="faultline testing") as conn:
            if self._arrange is not None:
                self._arrange(conn)
            with conn.transaction():  # so that one claim gets all of them
                enqueued = self._task.options(conn=conn).enqueue_many(self._args)
            job_ids = [each.job_id for each in enqueued]
            experiment = Experiment(
                self._app,
                self._task,
                job_ids,
                conn,
                planned=planned,
                limit_seconds=self._limit_seconds,
            )
            try:
                yield experiment, conn, job_ids
            finally:
                experiment.clean_up()

    def _violation(self, jobs: Sequence[database_control.JobSnapshot]) -> str | None:
        """Return what is violated, or None. The invariant gets a separate connection."""
        try:
            with connect(self._app.database_url, application_name="faultline invariant") as conn:
                result = self._invariant(conn)
        except AssertionError as error:
            # The first line is the user's message; pytest may have added the compared values.
            return next(iter(str(error).splitlines()), "the invariant")
        if result is False:
            return "the invariant returned False"
        unfinished = [job for job in jobs if job.state != "succeeded"]
        if self._must_succeed and unfinished:
            job = unfinished[0]
            return f"the job is {job.state} ({job.failed_reason or 'it did not end'})"
        return None


_MAINTENANCE = "postgres"


class DatabaseSnapshot:
    """Saves and restores a database under the same name, so that its URL stays valid."""

    def __init__(self, app: Faultline, admin: Connection, name: str) -> None:
        self._app = app
        self._admin = admin
        self._name = name
        self._copy = f"{name}_snapshot"

    def save(self) -> None:
        copy_database(self._admin, self._name, self._copy)

    def restore(self) -> None:
        close_connections(self._app)
        drop_database(self._admin, self._name)
        copy_database(self._admin, self._copy, self._name)

    def discard(self) -> None:
        drop_database(self._admin, self._copy)


@contextlib.contextmanager
def database_snapshot(app: Faultline) -> Iterator[DatabaseSnapshot]:
    """Save the database, and restore it when the block ends.

    Ends all sessions in the database, because PostgreSQL does not copy a database with open sessions.
    """
    url = app.database_url
    close_connections(app)
    with connect(url, application_name="faultline testing") as conn:
        require_test_database(conn)
        end_other_sessions(conn)
        run(conn, epochs.forget_database())  # the database is copied for each run
    with administration(url_of(url, _MAINTENANCE)) as admin:
        snapshot = DatabaseSnapshot(app, admin, name_of(url))
        snapshot.save()
        try:
            yield snapshot
        finally:
            snapshot.restore()
            snapshot.discard()
