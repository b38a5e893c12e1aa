"""Runs a soak: producers, workers, reconcilers and a nemesis; judges the result."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from faultline_drills.context import DrillNotRun
from faultline_drills.judging.checker import judge
from faultline_drills.nemesis import FaultTargets, Nemesis, NemesisFault, NemesisProcesses
from faultline_drills.soak.environment import (
    MAX_CONNECTIONS,
    SoakEnvironment,
    own_environment,
    shared_environment,
)
from faultline_drills.soak.limited_jobs import judge_limit, set_limit, wait_until_free
from faultline_drills.soak.report import SoakReport
from faultline_drills.soak.settings import SoakSettings
from faultline_drills.soak.traffic import Traffic

_LOOK_SECONDS = 0.2
_SECONDS_TO_WAIT = 30.0  # in so long a soak, jobs must have waited for their limit
_ALWAYS_SHOWN = ("commits", "takeovers")
# What a kind of fault must have caused, beside having been injected.
_CONSEQUENCES = {
    "lost_acknowledgement": "unknown_commits",
    "restart": "outages",
    "failover": "outages",
}


@dataclass(frozen=True)
class Progress:
    seconds: float
    phase: str
    submitted: int
    committed: int
    takeovers: int
    stale_rejections: int
    replaced: int
    faults: dict[str, int] = field(default_factory=dict)


def run_soak(
    settings: SoakSettings,
    *,
    server_url: str | None = None,
    on_fault: Callable[[str], None] = lambda line: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> SoakReport:
    """Run on the server at `server_url` without harming it, or on a new server."""
    began = time.monotonic()
    with ExitStack() as stack:
        if server_url is None:
            environment = own_environment(settings, stack, on_fault)
        else:
            environment = shared_environment(settings, server_url, stack, on_fault)
        drill = environment.drill
        if settings.limited_keys:
            set_limit(drill)
        version = str(drill.query("SHOW server_version")[0][0])
        _Soak(environment, settings, on_progress).run()
        drill.history.mark_unknown()
        state = drill.read_state()
        if settings.limited_keys:
            judge_limit(drill, state)
        tally = drill.tally()
        shows = _required_counts(environment.faults, settings)
        missing = [f"{name}: none" for name in shows if not tally.get(name)]
        judgement = judge(
            drill.history,
            state,
            shows=shows,
            missing=missing,
            broken=drill.broken_expectations,
        )
    return SoakReport(
        settings=settings,
        postgres=version,
        judgement=judgement,
        tally=tally,
        seconds=time.monotonic() - began,
        history=drill.history,
    )


class _Soak:
    def __init__(
        self,
        environment: SoakEnvironment,
        settings: SoakSettings,
        on_progress: Callable[[Progress], None],
    ) -> None:
        drill = self._drill = environment.drill
        self._seconds = settings.seconds
        self._on_progress = on_progress
        self._processes = NemesisProcesses(
            drill, environment.urls, workers=settings.workers, reconcilers=settings.reconcilers
        )
        self._traffic = Traffic(
            drill,
            environment.urls,
            producers=settings.producers,
            jobs_per_second=settings.pace_per_second,
            limited_keys=settings.limited_keys,
        )
        targets = FaultTargets(
            drill=drill,
            processes=self._processes,
            networks=environment.networks,
            rng=random.Random(settings.seed),  # noqa: S311 - the same faults for the same seed
            cluster=environment.cluster,
            clock=environment.clock,
            pooler=environment.pooler,
            max_connections=MAX_CONNECTIONS,
        )
        self._nemesis = Nemesis(
            targets, environment.faults, longest_pause_seconds=settings.longest_pause_seconds
        )
        self._began = time.monotonic()

    def run(self) -> None:
        drill = self._drill
        self._traffic.start()
        drill.wait_until(self._is_under_way, "the first commit")
        self._began = time.monotonic()
        self._nemesis.start()
        try:
            while time.monotonic() - self._began < self._seconds:
                self._look_after("under faults")
                time.sleep(_LOOK_SECONDS)
        finally:
            self._nemesis.end()
            self._traffic.end()
        for failure in (self._nemesis.failure, *self._traffic.failures):
            if failure is not None:
                raise DrillNotRun(f"the soak itself failed: {failure!r}") from failure
        try:
            drill.wait_until(self._is_drained, "the end of all jobs")
            wait_until_free(drill)
        except DrillNotRun as error:
            drill.expect(False, str(error))
        drill.stop_workers(drill.workers)

    def _is_under_way(self) -> bool:
        self._look_after("starting")
        return self._drill.worker_events.counts["commit_ok"] > 0

    def _is_drained(self) -> bool:
        self._look_after("finishing")
        return self._drill.unfinished() == 0

    def _look_after(self, phase: str) -> None:
        self._processes.replace_ended()
        self._traffic.check_backlog()
        counts = self._drill.worker_events.counts
        self._on_progress(
            Progress(
                seconds=time.monotonic() - self._began,
                phase=phase,
                submitted=self._traffic.acknowledged,
                committed=counts["commit_ok"],
                takeovers=counts["lease_reaped"],
                stale_rejections=counts["stale_write_blocked"],
                replaced=self._processes.replaced,
                faults=dict(self._drill.injected),
            )
        )


def _required_counts(faults: list[NemesisFault], settings: SoakSettings) -> list[str]:
    kinds = [fault.kind for fault in faults]
    consequences = [_CONSEQUENCES[kind] for kind in kinds if kind in _CONSEQUENCES]
    if settings.limited_keys and settings.seconds >= _SECONDS_TO_WAIT:
        consequences.append("limited_waits")
    return [*_ALWAYS_SHOWN, *(f"{kind}s" for kind in kinds), *consequences]
