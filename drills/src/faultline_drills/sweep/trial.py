"""One process, one point, one fault; then a second worker finishes, and the checker judges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from signal import SIGKILL, SIGTERM
from typing import LiteralString
from uuid import UUID

from faultline.postgres.sessions import run
from faultline.reconciler.audit import INVARIANTS, check
from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.judging.checker import DrillFinding, Verdict, judge
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import Message, Proxy, proxy_to
from faultline_drills.scenario import DrillSettings
from faultline_drills.sweep.injector import PointInjector
from faultline_drills.sweep.point import SweepFault, SweepPoint
from faultline_drills.sweep.results import PointResult
from faultline_drills.sweep.target_setup import TargetSetup

_LOOK_SECONDS = 0.02
_LAST_SECONDS = 5.0  # for what it sent before it left
_LEASES_STOPPED = 2  # how many leases' time a stopped process stands still, at least
_LEASES_ALONE = 10
_LONGEST_STOP_SECONDS = 8.0
_HELD: LiteralString = (
    "SELECT id FROM faultline.jobs WHERE state = 'running' AND strpos(lease_owner, %s) > 0"
)
# Of a process that holds none, such as a reconciler: any that somebody else has held.
_TAKEN_OVER: LiteralString = (
    "SELECT count(*) FROM faultline.jobs"
    " WHERE state = 'running' AND fencing_token > 1 AND strpos(lease_owner, %s) > 0"
    " AND (id = ANY(%s) OR cardinality(%s::uuid[]) = 0)"
)
_SHOWS = ("commits",)  # every job of a trial is done in the end
_ACKNOWLEDGEMENTS = ("COMMIT", "faultline.commit_many")


class PointTrial:
    """On a database of its own, which holds nothing but the schema and the drill's records."""

    def __init__(
        self,
        url: str,
        cast: TargetSetup,
        settings: DrillSettings,
        options: Sequence[str] = (),
        *,
        idle_seconds: float = 0.0,
    ) -> None:
        self._url = url
        self._cast = cast
        self._settings = settings
        self._options = (*cast.options, *options)
        self._idle_seconds = idle_seconds  # before a process that is done is asked to leave

    def dry_run(self) -> tuple[Message, ...]:
        """What the process sends when nothing happens to it."""
        with ExitStack() as stack:
            drill, proxy = self._open(stack)
            victim = self._start(drill, proxy)
            drill.wait_until(lambda: self._cast.is_done(drill), "the end of a run without a fault")
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
                    is_reached = False  # its last words came by when it had left
                if is_reached:
                    drill.inject(fault.noun, self._cast.target, point=str(point))
                    if fault.stops:
                        self._outlast(drill, victim, fault)
                    elif not fault.kills:
                        self._watch(drill, victim)
                injector.end()
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
        self._cast.prepare(drill)
        return drill, proxy

    def _start(self, drill: DrillContext, proxy: Proxy) -> ObservedProcess:
        command = self._cast.target.value
        return drill.worker(*self._options, name="struck", url=proxy.url, command=command)

    def _wait_for(
        self, injector: PointInjector, drill: DrillContext, victim: ObservedProcess
    ) -> bool:
        """Until it is struck, or has left: a process that is done is asked to leave, which is a part of
        its work as well."""
        deadline = time.monotonic() + self._settings.timeout_seconds
        leaves_at: float | None = None
        while not injector.wait(_LOOK_SECONDS):
            if not victim.is_alive:
                return injector.wait(_LAST_SECONDS)
            if time.monotonic() > deadline:
                return False
            if leaves_at is None and self._cast.is_done(drill):
                leaves_at = time.monotonic() + self._idle_seconds
            if leaves_at is not None and time.monotonic() >= leaves_at:
                leaves_at = deadline  # it is asked once
                victim.terminate()
        return True

    def _outlast(self, drill: DrillContext, victim: ObservedProcess, fault: SweepFault) -> None:
        """Let others go to work while it stands still: to the end, or until they are at its jobs."""
        began = time.monotonic()
        held = [row[0] for row in drill.conn.execute(_HELD, [f"-{victim.pid}-"])]
        second = drill.worker(name="second") if drill.unfinished() else None
        while (stood := time.monotonic() - began) < _LONGEST_STOP_SECONDS:
            if fault is SweepFault.OVERLAP and second and _is_at(drill, second, held):
                return
            if stood > _LEASES_STOPPED * self._settings.lease_seconds and not drill.unfinished():
                return
            time.sleep(_LOOK_SECONDS)

    def _watch(self, drill: DrillContext, victim: ObservedProcess) -> None:
        """One that has only lost a connection is given time to do its work alone."""
        deadline = time.monotonic() + _LEASES_ALONE * self._settings.lease_seconds
        while victim.is_alive and not self._cast.is_done(drill) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _expect(
        self,
        drill: DrillContext,
        victim: ObservedProcess,
        point: SweepPoint,
        fault: SweepFault,
        is_reached: bool,
    ) -> None:
        failed = "SELECT count(*) FROM faultline.jobs WHERE state <> 'succeeded'"
        drill.expect(drill.count(failed) == 0, "not every job has succeeded")
        ended = victim.exit_code
        allowed = _exit_codes(fault) if is_reached else {0, -SIGTERM}
        said = "" if ended in allowed else victim.recent_output()
        drill.expect(ended in allowed, f"the process ended with {ended}: {said}")
        for invariant in INVARIANTS:
            for found in run(drill.conn, check(invariant)):
                drill.expect(False, f"{invariant.claim}: {found.job_id} {found.evidence}")


def _is_at(drill: DrillContext, worker: ObservedProcess, jobs: Sequence[UUID]) -> bool:
    return drill.count(_TAKEN_OVER, [f"-{worker.pid}-", jobs, jobs]) > 0


def _exit_codes(fault: SweepFault) -> set[int]:
    """How the struck process may end: killed, or alive until it is asked to leave."""
    return {-SIGKILL} if fault.kills else {0, -SIGTERM}


def _tally(
    drill: DrillContext, point: SweepPoint, fault: SweepFault, verdict: Verdict
) -> dict[str, int]:
    is_lost = fault is SweepFault.DROP_REPLY and verdict is not Verdict.UNKNOWN
    acknowledges = point.label.what in _ACKNOWLEDGEMENTS
    return {**drill.tally(), "lost_acks": int(is_lost and acknowledges)}


def not_run(point: SweepPoint, fault: SweepFault, error: Exception, seconds: float) -> PointResult:
    finding = DrillFinding("nothing_was_shown", f"{type(error).__name__}: {error}")
    return PointResult(point, fault, Verdict.UNKNOWN, (finding,), {}, seconds)
