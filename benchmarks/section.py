"""A section of the report that is not a race between peers: what it is given, and what it gives back.

A section is a module with `run(context) -> Section`. Adding one is a line in SECTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.goal import Verdict
from benchmarks.peer import Peer
from benchmarks.processes import Program
from benchmarks.servers import Server

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTIONS = {"recovery": "benchmarks.recovery", "scaling": "benchmarks.scaling"}


@dataclass(frozen=True)
class Context:
    server: Server  # server.url may create databases; a section makes its own and drops them
    short: bool
    seed: int
    progress: Callable[[str], None]  # what is being done now, in a few words
    peers: Sequence[tuple[Peer, Program]] = ()  # those of this run that are installed


@dataclass(frozen=True)
class Section:
    title: str
    json: Mapping[str, Any]
    markdown: str  # without the title; headings from ### on
    figures: Mapping[str, Figure] = field(default_factory=dict)  # by the stem of their files
    verdicts: Sequence[Verdict] = ()  # its rows of the table "to reach"


def load_section(name: str) -> Callable[[Context], Section]:
    run: Callable[[Context], Section] = import_module(SECTIONS[name]).run
    return run
