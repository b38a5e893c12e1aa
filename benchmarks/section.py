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

SECTIONS = {"recovery": "benchmarks.recovery", "scaling": "benchmarks.scaling"}


@dataclass(frozen=True)
class SectionContext:
    server: PostgresServer  # server.url may create databases; a section creates and drops its own
    short: bool
    seed: int
    progress: Callable[[str], None]  # shows the current step
    peers: Sequence[tuple[Peer, Program]] = ()  # the installed peers of this run


@dataclass(frozen=True)
class Section:
    title: str
    json: Mapping[str, Any]
    markdown: str  # without the title; headings from ### on
    figures: Mapping[str, Figure] = field(default_factory=dict)  # by the stem of their files
    verdicts: Sequence[GoalVerdict] = ()  # its rows of the table of goals


def load_section(name: str) -> Callable[[SectionContext], Section]:
    run: Callable[[SectionContext], Section] = import_module(SECTIONS[name]).run
    return run
