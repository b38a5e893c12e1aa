"""Runs a soak: producers, workers and reconcilers on two networks and behind a pooler, a nemesis, and a
judgement at the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from faultline.drills import clock, pooler
from faultline.drills.arena import Arena, DrillNotRun
from faultline.drills.checker import judge
from faultline.drills.clock.movable import MovableClock
from faultline.drills.nemesis import Battlefield, Fault, Nemesis, Roster, available_faults
from faultline.drills.pooler import Pooler, pooler_to
from faultline.drills.proxy import proxy_to
from faultline.drills.recorder import install_records
from faultline.drills.scratch import scratch_database
from faultline.drills.soak.report import SoakReport
from faultline.drills.soak.settings import SoakSettings
from faultline.drills.soak.traffic import Traffic
from faultline.drills.subjects import install
from faultline.embedded import Server, temporary_server

_LOOK_SECONDS = 0.2
_MAX_CONNECTIONS = 120
_NETWORKS = 2
_ALWAYS_SHOWN = ("commits", "takeovers")
# What a kind of blow must have led to somewhere, beside having struck.
_CONSEQUENCES = {"lost_acknowledgement": "unknown_commits", "restart": "outages"}


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
        server = None
        if server_url is None:
            server = stack.enter_context(
                temporary_server(settings={"max_connections": str(_MAX_CONNECTIONS)})
            )
            server_url = server.url
        moved = _movable_clock(server)
        url = stack.enter_context(scratch_database(server_url))
        install(settings.subject, url)
        arena = Arena(url, settings.drill, server=server, stack=stack, notify=on_fault)
        install_records(arena.conn)
        version = str(arena.query("SHOW server_version")[0][0])
        pooled = _pooler(arena) if server is not None else None
        faults = _chosen(
            settings,
            owns_server=server is not None,
            moves_clock=moved is not None,
            has_pooler=pooled is not None,
        )
        _Soak(arena, settings, faults, moved, pooled, on_progress).run()
        arena.history.abandon()
        tally = arena.tally()
        shows = _to_be_shown(faults)
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
        self,
        arena: Arena,
        settings: SoakSettings,
        faults: list[Fault],
        moved: MovableClock | None,
        pooled: Pooler | None,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._arena = arena
        self._seconds = settings.seconds
        self._on_progress = on_progress
        networks = [arena.stack.enter_context(proxy_to(arena.url)) for _ in range(_NETWORKS)]
        urls = [network.url for network in networks]
        urls += [pooled.url(arena.url)] if pooled is not None else []
        self._roster = Roster(
            arena, urls, workers=settings.workers, reconcilers=settings.reconcilers
        )
        self._traffic = Traffic(
            arena,
            urls,
            producers=settings.producers,
            jobs_per_second=settings.pace_per_second,
        )
        field = Battlefield(
            arena=arena,
            roster=self._roster,
            networks=networks,
            dice=random.Random(settings.seed),  # noqa: S311 - the same blows for the same seed
            clock=moved,
            pooler=pooled,
            max_connections=_MAX_CONNECTIONS,
        )
        self._nemesis = Nemesis(field, faults, longest_pause_seconds=settings.longest_pause_seconds)
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


def _movable_clock(server: Server | None) -> MovableClock | None:
    """Start the server anew with a clock that can be moved, where that is possible."""
    if server is None or clock.lacking() is not None:
        return None
    moved = MovableClock(server.data_dir.parent)
    server.shut_down(mode="fast")
    server.environment.update(moved.environment)
    server.start()
    return moved


def _pooler(arena: Arena) -> Pooler | None:
    """For every third process, where there is one to be had."""
    if pooler.lacking() is not None:
        return None
    return arena.stack.enter_context(pooler_to(arena.url))


def _chosen(
    settings: SoakSettings, *, owns_server: bool, moves_clock: bool, has_pooler: bool
) -> list[Fault]:
    possible = available_faults(
        owns_server=owns_server, moves_clock=moves_clock, has_pooler=has_pooler
    )
    return [fault for fault in possible if not settings.faults or fault.kind in settings.faults]


def _to_be_shown(faults: list[Fault]) -> list[str]:
    kinds = [fault.kind for fault in faults]
    consequences = [_CONSEQUENCES[kind] for kind in kinds if kind in _CONSEQUENCES]
    return [*_ALWAYS_SHOWN, *(f"{kind}s" for kind in kinds), *consequences]
