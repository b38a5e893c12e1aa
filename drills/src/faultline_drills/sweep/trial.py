"""One trial: injects a fault at one point, lets a second worker finish, judges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from signal import SIGKILL, SIGTERM
from typing import LiteralString
from uuid import UUID

from faultline.postgres.sessions import run
from faultline.statements.invariants import INVARIANTS, check
from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.judging.checker import DrillVerdict, judge
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import Message, Proxy, proxy_to
from faultline_drills.scenario import DrillSettings
from faultline_drills.sweep.injector import PointInjector
from faultline_drills.sweep.point import SweepFault, SweepPoint
from faultline_drills.sweep.results import PointResult
from faultline_drills.sweep.target_setup import TargetSetup
from faultline_drills.waiting import POLL_SECONDS

_LAST_SECONDS = 5.0  # for the last messages of a process that has ended
_LEASES_STOPPED = 2  # a stopped process stays stopped for at least so many lease lengths
_LEASES_ALONE = 10  # how long a process that lost a connection may take for its work
_LONGEST_STOP_SECONDS = 8.0
_HELD: LiteralString = (
    "SELECT id FROM faultline.jobs WHERE state = 'running' AND strpos(lease_owner, %s) > 0"
)
# For a process that holds no job, such as a reconciler: any job that was claimed before.
_TAKEN_OVER: LiteralString = (
    "SELECT count(*) FROM faultline.jobs"
    " WHERE state = 'running' AND fencing_token > 1 AND strpos(lease_owner, %s) > 0"
    " AND (id = ANY(%s) OR cardinality(%s::uuid[]) = 0)"
)
_SHOWS = ("commits",)  # every job of a trial succeeds in the end
_ACKNOWLEDGEMENTS = ("COMMIT", "faultline.commit_many")


class PointTrial:
    """Uses a database that holds nothing but the schema and the drill's own tables."""

    def __init__(
        self,
        url: str,
        setup: TargetSetup,
        settings: DrillSettings,
        options: Sequence[str] = (),
        *,
        idle_seconds: float = 0.0,
    ) -> None:
        self._url = url
        self._setup = setup
        self._settings = settings
        self._options = (*setup.options, *options)
        self._idle_seconds = idle_seconds  # between the end of the work and SIGTERM

    def dry_run(self) -> tuple[Message, ...]:
        """The messages that the process sends without a fault."""
        with ExitStack() as stack:
            drill, proxy = self._open(stack)
            victim = self._start(drill, proxy)
            drill.wait_until(lambda: self._setup.is_done(drill), "the end of a run without a fault")
            drill.stop_workers([victim])
            return proxy.log

    def run(self, point: SweepPoint, fault: SweepFault) -> PointResult:
        began = time.monotonic()
        with ExitStack() as stack:
            drill, proxy = self._open(stack)
            injector = PointInjector(proxy, point, fault)
            victim = self._start(drill, proxy)
            injector.set_victim(victim)
            try:
                is_reached = self._wait_for(injector, drill, victim)
                if fault.kills and victim.exit_code != -SIGKILL:
                    is_reached = False  # the process ended by itself before the kill
                if is_reached:
                    drill.inject(fault.noun, self._setup.target, point=str(point))
                    if fault.stops:
                        self._outlast(drill, victim, fault)
                    elif not fault.kills:
                        self._watch(drill, victim)
                injector.end()
                if not self._setup.is_done(drill) and self._setup.finishes_it:
                    drill.worker(name="finisher of the work")
                    drill.wait_until(lambda: self._setup.is_done(drill), "the end of the work")
                drill.finish_jobs()
                self._expect(drill, victim, point, fault, is_reached)
            except DrillNotRun as error:
                drill.expect(False, error.message)
            drill.history.mark_unknown()
            missing = [] if is_reached else [f"{point} was not reached"]
            judged = judge(
                drill.history,
                drill.read_state(),
                shows=_SHOWS,
                missing=missing,
                broken=drill.broken_expectations,
            )
            return PointResult(
                point=point,
                fault=fault,
                verdict=judged.verdict,
                findings=judged.findings,
                tally=_tally(drill, point, fault, judged.verdict),
                seconds=time.monotonic() - began,
            )

    def _open(self, stack: ExitStack) -> tuple[DrillContext, Proxy]:
        drill = DrillContext(self._url, self._settings, server=None, stack=stack)
        proxy = stack.enter_context(proxy_to(self._url))
        self._setup.prepare(drill)
        return drill, proxy

    def _start(self, drill: DrillContext, proxy: Proxy) -> ObservedProcess:
        command = self._setup.target.command
        return drill.worker(*self._options, name="target", url=proxy.url, command=command)

    def _wait_for(
        self, injector: PointInjector, drill: DrillContext, victim: ObservedProcess
    ) -> bool:
        """Wait for the fault; SIGTERM the process after its work: stopping has points too."""
        deadline = time.monotonic() + self._settings.timeout_seconds
        stops_at: float | None = None
        while not injector.wait(POLL_SECONDS):
            if not victim.is_alive:
                return injector.wait(_LAST_SECONDS)
            if time.monotonic() > deadline:
                return False
            if stops_at is None and self._setup.is_done(drill):
                stops_at = time.monotonic() + self._idle_seconds
            if stops_at is not None and time.monotonic() >= stops_at:
                stops_at = deadline  # SIGTERM is sent once
                victim.terminate()
        return True

    def _outlast(self, drill: DrillContext, victim: ObservedProcess, fault: SweepFault) -> None:
        """Let a second worker finish all jobs meanwhile, or start one that it held."""
        began = time.monotonic()
        held = [row[0] for row in drill.conn.execute(_HELD, [f"-{victim.pid}-"])]
        has_work = drill.unfinished() or not self._setup.is_done(drill)
        second = drill.worker(name="second") if has_work else None
        while (elapsed := time.monotonic() - began) < _LONGEST_STOP_SECONDS:
            if fault is SweepFault.OVERLAP and second and _has_taken_over(drill, second, held):
                return
            if elapsed > _LEASES_STOPPED * self._settings.lease_seconds and self._is_over(drill):
                return
            time.sleep(POLL_SECONDS)

    def _is_over(self, drill: DrillContext) -> bool:
        """Whether a second worker has done what it can do while the first one is stopped."""
        is_done = not self._setup.finishes_it or self._setup.is_done(drill)
        return is_done and not drill.unfinished()

    def _watch(self, drill: DrillContext, victim: ObservedProcess) -> None:
        """Give a process that only lost a connection time to finish its work alone."""
        deadline = time.monotonic() + _LEASES_ALONE * self._settings.lease_seconds
        while victim.is_alive and not self._setup.is_done(drill) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _expect(
        self,
        drill: DrillContext,
        victim: ObservedProcess,
        point: SweepPoint,
        fault: SweepFault,
        is_reached: bool,
    ) -> None:
        for sentence in self._setup.broken(drill):
            drill.expect(False, sentence)
        failed = "SELECT count(*) FROM faultline.jobs WHERE state <> 'succeeded'"
        drill.expect(drill.count(failed) == 0, "not every job succeeded")
        ended = victim.exit_code
        allowed = _exit_codes(fault) if is_reached else {0, -SIGTERM}
        output = "" if ended in allowed else victim.recent_output()
        drill.expect(ended in allowed, f"the process ended with {ended}: {output}")
        for invariant in INVARIANTS:
            for found in run(drill.conn, check(invariant)):
                drill.expect(False, f"{invariant.claim}: {found.job_id} {found.evidence}")


def _has_taken_over(drill: DrillContext, worker: ObservedProcess, jobs: Sequence[UUID]) -> bool:
    return drill.count(_TAKEN_OVER, [f"-{worker.pid}-", jobs, jobs]) > 0


def _exit_codes(fault: SweepFault) -> set[int]:
    """The allowed exit codes: killed by the fault, or stopped by SIGTERM."""
    return {-SIGKILL} if fault.kills else {0, -SIGTERM}


def _tally(
    drill: DrillContext, point: SweepPoint, fault: SweepFault, verdict: DrillVerdict
) -> dict[str, int]:
    is_lost = fault is SweepFault.DROP_REPLY and verdict is not DrillVerdict.UNKNOWN
    acknowledges = point.label.what in _ACKNOWLEDGEMENTS
    return {**drill.tally(), "lost_acks": int(is_lost and acknowledges)}
