"""One run, from the installation of the peers to the report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.comparison import Sample, Turn, run_comparison, turns
from benchmarks.environments import Environment, NotInstalled, environment_of
from benchmarks.journal import Journal
from benchmarks.peer import Peer
from benchmarks.processes import Program
from benchmarks.report import write_report
from benchmarks.results import Participant, Results
from benchmarks.section import Section, SectionContext, load_section
from benchmarks.servers import PostgresServer, Redis, postgres_server, redis_server
from benchmarks.trial import TrialServers
from benchmarks.workloads import Workload
from faultline_drills.provenance import provenance


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of a run."""

    command: str
    peers: Sequence[Peer]
    workloads: Sequence[Workload]
    sections: Sequence[str]
    repeats: int
    scale: float
    seed: int
    short: bool
    timeout_seconds: float
    database_url: str | None
    output: Path
    resume: bool = False

    def settings(self) -> dict[str, object]:
        """Return the settings that samples depend on; --resume requires equal ones."""
        return {
            "seed": self.seed,
            "scale": self.scale,
            "repeats": self.repeats,
            "timeout_seconds": self.timeout_seconds,
            "peers": [peer.name for peer in self.peers],
            "workloads": [workload.name for workload in self.workloads],
        }


class Display(Protocol):
    """Shows the progress of a run."""

    def show(self, text: str) -> None: ...
    def start(self, turns: int) -> None: ...
    def show_turn(self, turn: Turn) -> None: ...
    def show_sample(self, sample: Sample) -> None: ...


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
        participants, environments = _install(plan.peers, redis, display)
        running = [
            participant.peer for participant in participants if participant.not_installed is None
        ]
        try:
            planned = turns(running, plan.workloads, plan.repeats, plan.seed)
            _compare(plan, planned, environments, TrialServers(postgres, redis), journal, display)
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
        turns_left=sum(not journal.has(turn) for turn in planned) if is_interrupted else 0,
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
) -> None:
    left = [turn for turn in planned if not journal.has(turn)]
    display.start(len(left))
    for sample in run_comparison(
        left,
        environments,
        servers,
        scale=plan.scale,
        timeout_seconds=plan.timeout_seconds,
        on_turn=display.show_turn,
    ):
        journal.add(sample)
        display.show_sample(sample)


def _install(
    peers: Sequence[Peer], redis: Redis | None, display: Display
) -> tuple[list[Participant], dict[str, Environment]]:
    participants, environments = [], {}
    for peer in peers:
        display.show(f"installing {peer.title}")
        try:
            if peer.broker == "redis" and redis is None:
                raise NotInstalled("redis-server is not installed on this machine")
            environments[peer.name] = environment = environment_of(peer)
        except NotInstalled as problem:
            participants.append(Participant(peer, not_installed=str(problem)))
        else:
            participants.append(Participant(peer, environment.versions))
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
    context = SectionContext(postgres, plan.short, plan.seed, display.show, peers)
    for name in plan.sections:
        display.show(name)
        try:
            done[name] = load_section(name)(context)
        except Exception as problem:
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
        "timeout_seconds": plan.timeout_seconds,
        "workloads": [workload.name for workload in plan.workloads],
        "postgres": postgres.settings,
        "redis": redis.version if redis else None,
    }
