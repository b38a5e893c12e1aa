"""Runs a handler over and over, with every fault at every point, and asks for the user's invariant."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from faultline.app import Faultline
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection, connect
from faultline.task import Task
from faultline.testing.zombies import referee
from faultline.testing.zombies.driver import watched_driver
from faultline.testing.zombies.faults import ALL_FAULTS, Fault
from faultline.testing.zombies.points import Point
from faultline.testing.zombies.report import (
    NotExercised,
    Run,
    Verdict,
    ZombieEffect,
    ZombieReport,
)
from faultline.testing.zombies.scenario import Scenario
from faultline.testing.zombies.slate import Slate, clean_slate
from faultline.testing.zombies.watch import Strike

Arrange = Callable[[Connection], object]
Invariant = Callable[[Connection], object]


def zombies(
    app: Faultline,
    task: Task[Any, Any],
    args: Mapping[str, Any] | None = None,
    *,
    invariant: Invariant,
    arrange: Arrange | None = None,
    faults: Sequence[Fault | str] = ALL_FAULTS,
    must_succeed: bool = True,
    max_runs: int = 500,
    run_limit_seconds: float = 20.0,
) -> ZombieReport:
    """Strike the handler's first attempt at each of its points, let the job come to its end, and check
    `invariant`: it is given a connection, and raises AssertionError or returns False when violated.

    The test's database as it is now is where each run starts from; `arrange` is called before each of
    them, with a connection, to set up what is not in the database. Raises ZombieEffect with a table and
    a story when the invariant, or the job's success, does not survive a fault, and NotExercised when
    the runs did not do what they claim to.
    """
    __tracebackhide__ = True  # pytest shows the caller's line, which is where the report belongs
    if app.tasks.get(task.name) is not task:
        raise InvalidInput(f"{task.name} is not a task of this application")
    wanted = tuple(Fault(fault) for fault in faults)
    kit = _Kit(app, task, dict(args or {}), invariant, arrange, must_succeed, run_limit_seconds)
    with clean_slate(app) as slate, watched_driver():
        points, answers = kit.survey(slate)
        plan = [
            (p, f) for p in points for f in wanted if f is not Fault.LOST_ANSWER or p in answers
        ]
        if len(plan) > max_runs:
            raise InvalidInput(
                f"{len(points)} points make {len(plan)} runs, more than max_runs={max_runs}",
                hint="name fewer faults, or give the handler less to do",
            )
        runs = [kit.run(slate, point, fault) for point, fault in plan]
    report = ZombieReport(task.name, points, tuple(runs))
    _require_exercised(report, wanted, explicit=wanted != ALL_FAULTS)
    if report.violations:
        raise ZombieEffect(report)
    return report


def _require_exercised(report: ZombieReport, wanted: Sequence[Fault], *, explicit: bool) -> None:
    if not report.runs:
        raise NotExercised(f"{report.task} was struck nowhere: it has no point for {wanted}")
    missed = [fault for fault in wanted if not report.struck.get(fault)]
    if missed and (explicit or missed != [Fault.LOST_ANSWER]):
        raise NotExercised(f"{report.task} has no point for {', '.join(missed)}")
    if not report.takeovers and set(wanted) - {Fault.LOST_ANSWER}:
        raise NotExercised(f"no run of {report.task} led to a second attempt")


class _Kit:
    def __init__(
        self,
        app: Faultline,
        task: Task[Any, Any],
        args: dict[str, Any],
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

    def survey(self, slate: Slate) -> tuple[tuple[Point, ...], frozenset[Point]]:
        """The handler's points, from a run in which nothing happens to it."""
        with self._scenario(slate, None) as (scenario, conn, job_id):
            scenario.play()
            first = scenario.first
            if first is None:
                raise NotExercised(f"{self._task.name} was not run at all")
            standing = referee.standing(conn, job_id)
            if reason := self._violation(standing):
                raise NotExercised(
                    f"nothing was done to {self._task.name}, and yet: {reason}\n{scenario.story}"
                )
            if standing.token > 1:
                raise NotExercised(
                    f"{self._task.name} needed {standing.token} attempts with nothing done to it\n"
                    f"{scenario.story}"
                )
            return tuple(first.points), frozenset(first.answers)

    def run(self, slate: Slate, point: Point, fault: Fault) -> Run:
        with self._scenario(slate, Strike(point, fault)) as (scenario, conn, job_id):
            scenario.play()
            standing = referee.standing(conn, job_id)
            scenario.story.tell(f"the end: {standing.state}, token {standing.token}")
            reason = self._violation(standing)
            return Run(
                point=point,
                fault=fault,
                verdict=Verdict.VIOLATED if reason else Verdict.HELD,
                reason=reason,
                taken_over=standing.token > 1,
                refusals=standing.refusals,
                story=scenario.story,
            )

    @contextlib.contextmanager
    def _scenario(
        self, slate: Slate, strike: Strike | None
    ) -> Iterator[tuple[Scenario, Connection, UUID]]:
        slate.restore()
        with connect(self._app.database_url, application_name="faultline referee") as conn:
            if self._arrange is not None:
                self._arrange(conn)
            job_id = self._task.enqueue(conn=conn, **self._args).job_id
            scenario = Scenario(
                self._app,
                self._task,
                job_id,
                conn,
                strike=strike,
                limit_seconds=self._limit_seconds,
            )
            try:
                yield scenario, conn, job_id
            finally:
                scenario.bury()

    def _violation(self, standing: referee.Standing) -> str | None:
        """On a connection of its own: what the user's function does to it is nobody else's concern."""
        try:
            with connect(self._app.database_url, application_name="faultline invariant") as conn:
                answer = self._invariant(conn)
        except AssertionError as error:
            # Its first line is the user's own; pytest may have added what was compared.
            return next(iter(str(error).splitlines()), "the invariant")
        if answer is False:
            return "the invariant returned False"
        if self._must_succeed and standing.state != "succeeded":
            return f"the job has {standing.state} ({standing.failed_reason or 'it never ended'})"
        return None
