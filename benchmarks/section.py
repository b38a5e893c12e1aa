"""Sections of the report beside the comparison: their input and their result.

A section is a module with `run(context) -> Section`. To add one, add it to SECTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.goal import GoalVerdict
from benchmarks.peer import Peer
from benchmarks.processes import Program
from benchmarks.servers import PostgresServer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SectionPlan:
    """The module of a section, and how long it takes on two cores without other load."""

    module: str
    seconds: float
    short_seconds: float | None = None  # None: it is not part of --short
    all_seconds: float | None = None  # if it measures more with --all


SECTIONS = {
    "many_queues": SectionPlan("benchmarks.sections.many_queues", 30, 10),
    "notifications": SectionPlan("benchmarks.sections.notifications", 150, 35),
    "renewals": SectionPlan("benchmarks.sections.renewals", 25, 10),
    "pinned": SectionPlan("benchmarks.sections.pinned", 240, None),
    "unused_features": SectionPlan("benchmarks.sections.unused_features", 120, None),
    "recovery": SectionPlan("benchmarks.recovery", 100, all_seconds=700),
    # It runs only with --all, or when it is named: filling its tables takes long.
    "scaling": SectionPlan("benchmarks.scaling", 3000),
}
ONLY_WITH_ALL = ("scaling",)


@dataclass(frozen=True)
class SectionContext:
    server: PostgresServer  # server.url may create databases; a section creates and drops its own
    short: bool
    seed: int
    progress: Callable[[str], None]  # shows the current step
    peers: Sequence[tuple[Peer, Program]] = ()  # the installed peers of this run
    everything: bool = False  # --all: also what takes long


@dataclass(frozen=True)
class Section:
    title: str
    json: Mapping[str, Any]
    markdown: str  # without the title; headings from ### on
    figures: Mapping[str, Figure] = field(default_factory=dict)  # by the stem of their files
    verdicts: Sequence[GoalVerdict] = ()  # its rows of the table of goals


def load_section(name: str) -> Callable[[SectionContext], Section]:
    run: Callable[[SectionContext], Section] = import_module(SECTIONS[name].module).run
    return run
