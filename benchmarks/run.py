"""One run, from the installation of the peers to the report."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from benchmarks.comparison import Sample, Turn, run_comparison
from benchmarks.environments import Environment, NotInstalled, environment_of
from benchmarks.journal import Journal
from benchmarks.peer import Peer
from benchmarks.plan import Plan
from benchmarks.processes import Program
from benchmarks.report import write_report
from benchmarks.results import Participant, Results
from benchmarks.section import ONLY_WITH_ALL, Section, SectionContext, load_section
from benchmarks.servers import PostgresServer, Redis, postgres_server, redis_server
from benchmarks.trial import TrialServers
from faultline_drills.provenance import provenance

_INSTALLED_AT_ONCE = 4


class Display(Protocol):
    """Shows the progress of a run."""

    def show(self, text: str) -> None: ...
    def show_plan(self, lines: Sequence[str]) -> None: ...
    def start(self, turns: int, seconds: float, seconds_after: float) -> None: ...
    def show_turn(self, turn: Turn) -> None: ...
    def show_sample(self, sample: Sample, planned_seconds: float) -> None: ...


def run_plan(plan: Plan, display: Display) -> tuple[Results, list[Path]]:
    """Measure and write the report; after an interrupt, of the samples so far."""
    began = time.monotonic()
    sections: dict[str, Section] = {}
    missing: dict[str, str] = {}
    planned: list[Turn] = []
    is_interrupted = False
    with contextlib.ExitStack() as stack:
        open_journal = Journal.resume if plan.resume else Journal.begin
        journal = open_journal(plan.output, plan.settings())
        stack.callback(journal.close)
        display.show("starting PostgreSQL")
        postgres = stack.enter_context(postgres_server(plan.database_url))
        redis = stack.enter_context(redis_server())
        installing = time.monotonic()
        participants, environments = _install(plan.peers, redis, display)
        installation_seconds = time.monotonic() - installing
        running = [
            participant.peer for participant in participants if participant.not_installed is None
        ]
        try:
            planned = plan.turns(running)
            display.show_plan(plan.describe(planned))
            _compare(
                plan,
                planned,
                environments,
                TrialServers(postgres, redis),
                journal,
                display,
                until=began + installation_seconds + plan.comparison_seconds,
            )
            installed = [(peer, environments[peer.name].program) for peer in running]
            _run_sections(plan, postgres, installed, display, sections, missing)
        except KeyboardInterrupt:
            is_interrupted = True
            for name in plan.sections:
                if name not in sections:
                    missing.setdefault(name, "the run was interrupted")
    origin = provenance(plan.command, seed=plan.seed, postgres=postgres.version)
    results = Results(
        origin=origin.facts(),
        settings=_settings(plan, postgres, redis, time.monotonic() - began),
        participants=participants,
        samples=journal.samples,
        sections=sections,
        missing_sections=missing,
        turns_left=sum(not journal.has(turn) for turn in _worth_taking(planned, journal)),
        left_out=[*plan.left_out, *(name for name in ONLY_WITH_ALL if name not in plan.sections)],
        is_interrupted=is_interrupted,
    )
    return results, write_report(results, plan.output, origin.line)


def _compare(
    plan: Plan,
    planned: Sequence[Turn],
    environments: dict[str, Environment],
    servers: TrialServers,
    journal: Journal,
    display: Display,
    *,
    until: float,
) -> None:
    left = [turn for turn in planned if not journal.has(turn)]
    display.start(len(left), plan.turns_seconds(left), plan.sections_seconds())
    budgets = {each.name: each.budget_seconds(plan.limits) for each in plan.workloads}
    for sample in run_comparison(
        left,
        environments,
        servers,
        scale=plan.scale,
        limits=plan.limits,
        on_turn=display.show_turn,
        until=until,
    ):
        journal.add(sample)
        display.show_sample(sample, budgets[sample.workload])


def _worth_taking(planned: Sequence[Turn], journal: Journal) -> list[Turn]:
    """Return the turns without those of peers that failed twice and are skipped since."""
    failures = Counter((s.peer, s.workload) for s in journal.samples if s.problem)
    return [turn for turn in planned if failures[turn.peer.name, turn.workload.name] < 2]


def _install(
    peers: Sequence[Peer], redis: Redis | None, display: Display
) -> tuple[list[Participant], dict[str, Environment]]:
    """Install the peers that are not installed yet, several at a time."""
    participants, environments = [], {}

    def install(peer: Peer) -> Environment | NotInstalled:
        try:
            if peer.broker == "redis" and redis is None:
                raise NotInstalled("redis-server is not installed on this machine")
            return environment_of(peer)
        except NotInstalled as problem:
            return problem

    display.show("installing peers")
    with ThreadPoolExecutor(_INSTALLED_AT_ONCE) as threads:
        for peer, found in zip(peers, threads.map(install, peers), strict=True):
            if isinstance(found, NotInstalled):
                participants.append(Participant(peer, not_installed=str(found)))
            else:
                environments[peer.name] = found
                participants.append(Participant(peer, found.versions))
    return participants, environments


def _run_sections(
    plan: Plan,
    postgres: PostgresServer,
    peers: Sequence[tuple[Peer, Program]],
    display: Display,
    done: dict[str, Section],
    missing: dict[str, str],
) -> None:
    """Run the sections; a failed section is listed as missing in the report."""
    context = SectionContext(
        postgres, plan.short, plan.seed, display.show, peers, everything=plan.everything
    )
    for name in plan.sections:
        display.show(name)
        try:
            done[name] = load_section(name)(context)
        except (Exception, SystemExit) as problem:  # some are commands of their own, too
            missing[name] = f"{type(problem).__name__}: {problem}"
            display.show(f"{name} failed: {missing[name]}")


def _settings(
    plan: Plan, postgres: PostgresServer, redis: Redis | None, took_seconds: float
) -> dict[str, object]:
    return {
        "short": plan.short,
        "repeats": plan.repeats,
        "scale": plan.scale,
        "took_seconds": round(took_seconds),
        "measured_seconds": plan.limits.measured_seconds,
        "planned_seconds": round(plan.budget_seconds(plan.turns(plan.peers))),
        "workloads": [workload.name for workload in plan.workloads],
        "postgres": postgres.settings,
        "redis": redis.version if redis else None,
    }
