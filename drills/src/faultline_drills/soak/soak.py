"""Runs a soak: producers, workers and reconcilers on two networks and behind a pooler, a nemesis, and a
judgement at the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from faultline_drills.arena import DrillNotRun
from faultline_drills.checker import judge
from faultline_drills.nemesis import Battlefield, Fault, Nemesis, Roster
from faultline_drills.soak.ground import MAX_CONNECTIONS, Ground, own_ground, somebodys_ground
from faultline_drills.soak.report import SoakReport
from faultline_drills.soak.settings import SoakSettings
from faultline_drills.soak.traffic import Traffic

_LOOK_SECONDS = 0.2
_ALWAYS_SHOWN = ("commits", "takeovers")
# What a kind of blow must have led to somewhere, beside having struck.
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
    """On the server at `server_url`, which is then not harmed, else on one of the soak's own."""
    began = time.monotonic()
    with ExitStack() as stack:
        if server_url is None:
            ground = own_ground(settings, stack, on_fault)
        else:
            ground = somebodys_ground(settings, server_url, stack, on_fault)
        arena = ground.arena
        version = str(arena.query("SHOW server_version")[0][0])
        _Soak(ground, settings, on_progress).run()
        arena.history.abandon()
        tally = arena.tally()
        shows = _to_be_shown(ground.faults)
        missing = [f"{name}: none" for name in shows if not tally.get(name)]
        judgement = judge(
            arena.history, arena.world(), shows=shows, missing=missing, unmet=arena.unmet
        )
    return SoakReport(
        settings=settings,
        postgres=version,
        judgement=judgement,
        tally=tally,
        seconds=time.monotonic() - began,
        history=arena.history,
    )


class _Soak:
    def __init__(
        self, ground: Ground, settings: SoakSettings, on_progress: Callable[[Progress], None]
    ) -> None:
        arena = self._arena = ground.arena
        self._seconds = settings.seconds
        self._on_progress = on_progress
        self._roster = Roster(
            arena, ground.urls, workers=settings.workers, reconcilers=settings.reconcilers
        )
        self._traffic = Traffic(
            arena,
            ground.urls,
            producers=settings.producers,
            jobs_per_second=settings.pace_per_second,
        )
        field = Battlefield(
            arena=arena,
            roster=self._roster,
            networks=ground.networks,
            dice=random.Random(settings.seed),  # noqa: S311 - the same blows for the same seed
            cluster=ground.cluster,
            clock=ground.clock,
            pooler=ground.pooler,
            max_connections=MAX_CONNECTIONS,
        )
        self._nemesis = Nemesis(
            field, ground.faults, longest_pause_seconds=settings.longest_pause_seconds
        )
        self._began = time.monotonic()

    def run(self) -> None:
        arena = self._arena
        self._traffic.start()
        arena.wait_until(self._is_under_way, "the first commit")
        self._began = time.monotonic()
        self._nemesis.start()
        try:
            while time.monotonic() - self._began < self._seconds:
                self._tend("under fire")
                time.sleep(_LOOK_SECONDS)
        finally:
            self._nemesis.end()
            self._traffic.end()
        for failure in (self._nemesis.failure, *self._traffic.failures):
            if failure is not None:
                raise DrillNotRun(f"the soak itself failed: {failure!r}") from failure
        try:
            arena.wait_until(self._is_drained, "the end of all jobs")
        except DrillNotRun as error:
            arena.expect(False, str(error))
        arena.dismiss(arena.workers)

    def _is_under_way(self) -> bool:
        self._tend("starting")
        return self._arena.chronicle.said["commit_ok"] > 0

    def _is_drained(self) -> bool:
        self._tend("settling")
        return self._arena.unfinished() == 0

    def _tend(self, phase: str) -> None:
        self._roster.tend()
        self._traffic.look_at_the_backlog()
        said = self._arena.chronicle.said
        self._on_progress(
            Progress(
                seconds=time.monotonic() - self._began,
                phase=phase,
                submitted=self._traffic.acknowledged,
                committed=said["commit_ok"],
                takeovers=said["lease_reaped"],
                stale_rejections=said["stale_write_blocked"],
                replaced=self._roster.replaced,
                faults=dict(self._arena.injected),
            )
        )


def _to_be_shown(faults: list[Fault]) -> list[str]:
    kinds = [fault.kind for fault in faults]
    consequences = [_CONSEQUENCES[kind] for kind in kinds if kind in _CONSEQUENCES]
    return [*_ALWAYS_SHOWN, *(f"{kind}s" for kind in kinds), *consequences]
