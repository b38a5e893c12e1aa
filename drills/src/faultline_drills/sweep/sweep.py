"""The crash sweep: injects six faults at every message that a process sends."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import psycopg

from faultline.errors import FaultlineError
from faultline.postgres.sessions import connect
from faultline_drills.context import DrillNotRun
from faultline_drills.judging.checker import DrillFinding, DrillVerdict
from faultline_drills.proxy import Message
from faultline_drills.recording.tables import install_tables
from faultline_drills.scenario import DrillSettings
from faultline_drills.subjects import Subject, install
from faultline_drills.sweep.database_template import DatabaseTemplate, database_template
from faultline_drills.sweep.migration import (
    Catalogue,
    MigrationTrial,
    leave_older,
    read_catalogue,
    read_queue,
)
from faultline_drills.sweep.point import SweepFault, SweepPoint, SweepTarget, points_of
from faultline_drills.sweep.results import ERROR_RULE, PointResult, SweepReport
from faultline_drills.sweep.target_setup import RECONCILER, SCHEDULER, WORKER
from faultline_drills.sweep.trial import PointTrial

_DRY_RUNS = 2  # a point must occur in both, or it cannot be reached reliably
# A point that was not reached is tried once more. Messages that follow the clock, such as the tenth
# heartbeat, are reached by a process that idles for a while before it is stopped.
_IDLE_SECONDS = (0.0, 2.0)
_SETUPS = {each.target: each for each in (WORKER, RECONCILER, SCHEDULER)}

OnPoint = Callable[[PointResult, int], None]  # the result, and the number of all points
Prepare = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SweepSettings:
    targets: tuple[SweepTarget, ...] = tuple(SweepTarget)
    faults: tuple[SweepFault, ...] = tuple(SweepFault)
    sample: int | None = None  # the number of points; all of them if None
    seed: int = 1
    subject: Subject = Subject.FAULTLINE
    lease_seconds: float = 0.5
    timeout_seconds: float = 30.0
    parallel: int = 2
    worker_options: tuple[str, ...] = ()
    patch: str = ""  # SQL that changes the subject: a planted bug

    @property
    def command(self) -> str:
        """The command that repeats this sweep."""
        words = ["faultline drill sweep", f"--seed {self.seed}"]
        if self.targets != tuple(SweepTarget):
            words += [f"--target {target}" for target in self.targets]
        if self.faults != tuple(SweepFault):
            words += [f"--fault {fault}" for fault in self.faults]
        if self.sample is not None:
            words.append(f"--points {self.sample}")
        if self.subject is not Subject.FAULTLINE:
            words.append(f"--subject {self.subject}")
        return " ".join([*words, *self.worker_options])


class PointRunner:
    """Runs single points, each on its own copy of a template database on one server."""

    def __init__(self, server_url: str, settings: SweepSettings, stack: ExitStack) -> None:
        self.settings = settings
        self._drill_settings = DrillSettings(
            seed=settings.seed,
            lease_seconds=settings.lease_seconds,
            timeout_seconds=settings.timeout_seconds,
            subject=settings.subject,
        )
        self._whole: Catalogue = []
        self._queue: Catalogue = []
        self._installed = stack.enter_context(database_template(server_url, self._install))
        migrated = {SweepTarget.MIGRATOR: lambda url: None, SweepTarget.UPGRADER: self._leave_older}
        self._to_migrate: dict[SweepTarget, DatabaseTemplate] = {
            target: stack.enter_context(database_template(server_url, prepare))
            for target, prepare in migrated.items()
            if target in settings.targets
        }

    def _leave_older(self, url: str) -> None:
        install(Subject.FAULTLINE, url)
        with connect(url, application_name="faultline drill") as conn:
            leave_older(conn)
            self._queue = read_queue(conn)

    def _install(self, url: str) -> None:
        install(self.settings.subject, url)
        with connect(url, application_name="faultline drill") as conn:
            self._whole = read_catalogue(conn)
            install_tables(conn)
            if self.settings.patch:
                conn.execute(self.settings.patch.encode())

    @contextmanager
    def _trial(
        self, target: SweepTarget, idle_seconds: float = 0.0
    ) -> Iterator[PointTrial | MigrationTrial]:
        if target in self._to_migrate:
            with self._to_migrate[target].copy() as url:
                bound = self.settings.timeout_seconds
                queue = self._queue if target is SweepTarget.UPGRADER else []
                yield MigrationTrial(url, self._whole, queue, timeout_seconds=bound)
        else:
            with self._installed.copy() as url:
                options = self.settings.worker_options if target is SweepTarget.WORKER else ()
                setup = _SETUPS[target]
                yield PointTrial(
                    url, setup, self._drill_settings, options, idle_seconds=idle_seconds
                )

    def dry_runs(self, target: SweepTarget) -> tuple[tuple[Message, ...], ...]:
        """The messages of a few runs without a fault."""
        runs = []
        for _ in range(_DRY_RUNS):
            with self._trial(target) as trial:
                runs.append(trial.dry_run())
        return tuple(runs)

    def points(self, target: SweepTarget) -> list[SweepPoint]:
        return points_of(target, self.dry_runs(target))

    def run(self, point: SweepPoint, fault: SweepFault) -> PointResult:
        """Inject the fault at the point; once more if the point was not reached.

        An error is a result too, so that one point does not end the sweep.
        """
        began = time.monotonic()
        for idle_seconds in _IDLE_SECONDS:
            try:
                with self._trial(point.target, idle_seconds) as trial:
                    result = trial.run(point, fault)
            except DrillNotRun as error:
                finding = _finding("nothing_was_shown", error)
                result = _without_verdict(point, fault, finding, began)
            except (FaultlineError, psycopg.Error) as error:
                finding = _finding(ERROR_RULE, error)
                return replace(_without_verdict(point, fault, finding, began), is_error=True)
            if result.verdict is not DrillVerdict.UNKNOWN:
                break
        return result


def _finding(rule: str, error: Exception) -> DrillFinding:
    return DrillFinding(rule, f"{type(error).__name__}: {error}")


def _without_verdict(
    point: SweepPoint, fault: SweepFault, finding: DrillFinding, began: float
) -> PointResult:
    return PointResult(point, fault, DrillVerdict.UNKNOWN, (finding,), {}, time.monotonic() - began)


@contextmanager
def point_runner(server_url: str, settings: SweepSettings) -> Iterator[PointRunner]:
    with ExitStack() as stack:
        yield PointRunner(server_url, settings, stack)


def choose(
    points: Sequence[SweepPoint], faults: Sequence[SweepFault], *, sample: int | None, seed: int
) -> list[tuple[SweepPoint, SweepFault]]:
    """Every point with every fault, or a sample of them: the same for the same seed."""
    everything = [(point, fault) for point in points for fault in faults if _applies(point, fault)]
    if sample is None or sample >= len(everything):
        return everything
    chosen = random.Random(seed).sample(range(len(everything)), sample)  # noqa: S311 - repeatable
    return [everything[position] for position in sorted(chosen)]


def _applies(point: SweepPoint, fault: SweepFault) -> bool:
    """Another process overlaps with one that runs jobs, or requeues them."""
    return point.target.holds_jobs or fault is not SweepFault.OVERLAP


def sweep(
    server_url: str,
    settings: SweepSettings | None = None,
    *,
    on_point: OnPoint = lambda result, total: None,
) -> SweepReport:
    """Sweep on databases of its own on that server, which are dropped afterwards."""
    settings, left_out = _without_pointless_targets(settings or SweepSettings())
    began = time.monotonic()
    messages: dict[SweepTarget, int] = {}
    points: list[SweepPoint] = []
    results: list[PointResult] = []
    with point_runner(server_url, settings) as runner:
        for target in settings.targets:
            runs = runner.dry_runs(target)
            messages[target] = sum(map(target.includes, runs[0]))
            points += points_of(target, runs)
        chosen = choose(points, settings.faults, sample=settings.sample, seed=settings.seed)
        with ThreadPoolExecutor(settings.parallel) as pool:
            for result in pool.map(lambda each: runner.run(*each), chosen):
                results.append(result)
                on_point(result, len(chosen))
    tally: Counter[str] = Counter()
    for result in results:
        tally.update(result.tally)
    return SweepReport(
        subject=settings.subject,
        seed=settings.seed,
        messages=messages,
        available=len(choose(points, settings.faults, sample=None, seed=settings.seed)),
        results=tuple(results),
        seconds=time.monotonic() - began,
        tally=tally,
        left_out=left_out,
    )


def _without_pointless_targets(settings: SweepSettings) -> tuple[SweepSettings, tuple[str, ...]]:
    """Leave out migrations if the subject is the control: they restore the fence."""
    if settings.subject is Subject.FAULTLINE:
        return settings, ()
    kept = tuple(target for target in settings.targets if not target.migrates)
    left_out = tuple(
        f"{target}: it installs Faultline's own schema, whatever the subject is"
        for target in settings.targets
        if target.migrates
    )
    return replace(settings, targets=kept), left_out
