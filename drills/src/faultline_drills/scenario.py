"""A scenario: one story of a failure, what it must bring about to show anything, and how to find them all."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faultline.errors import InvalidInput
from faultline_drills.subjects import Subject

if TYPE_CHECKING:
    from faultline.embedded import Server
    from faultline_drills.context import DrillContext

Play = Callable[["DrillContext"], None]
MakeServer = Callable[..., AbstractContextManager["Server"]]


@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    seed: int = 1
    jobs: int = 12
    workers: int = 2
    fault_rate: float = 0.5  # the share of jobs that are struck, where a scenario strikes by chance
    lease_seconds: float = 1.0
    timeout_seconds: float = 60.0
    subject: Subject = Subject.FAULTLINE

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.workers < 1:
            raise InvalidInput("a drill needs at least one job and one worker")
        if not 0 < self.fault_rate <= 1:
            raise InvalidInput("--fault-rate is a share: more than 0, at most 1 (0.1 for 10 %)")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    story: str
    play: Play
    shows: tuple[str, ...]  # counts that must not be 0 afterwards, or nothing was shown
    breaks_naive: bool  # whether the control, without its fence, must be found invalid
    own_server: (
        bool  # it restarts, starves or misdirects a server: never one that somebody else uses
    )
    server_settings: Mapping[str, str] = field(default_factory=dict)
    make_server: MakeServer | None = None  # called with `settings`; None: an ordinary one
    lacking: Callable[[], str | None] = lambda: None  # what this machine would have to have

    @property
    def title(self) -> str:
        """The first sentence of the story."""
        return " ".join(self.story.split("\n\n")[0].split())


_found: dict[str, Scenario] = {}


def scenario(
    *,
    shows: tuple[str, ...],
    breaks_naive: bool = False,
    own_server: bool = False,
    server_settings: Mapping[str, str] | None = None,
    make_server: MakeServer | None = None,
    lacking: Callable[[], str | None] = lambda: None,
) -> Callable[[Play], Play]:
    """Make a function the play of a scenario of its name; the docstring of its module is the story."""

    def register(play: Play) -> Play:
        module = inspect.getmodule(play)
        name = play.__name__
        if name in _found:
            raise ValueError(f"two scenarios are named {name}")
        _found[name] = Scenario(
            name=name,
            story=inspect.cleandoc(play.__doc__ or (module.__doc__ if module else None) or ""),
            play=play,
            shows=shows,
            breaks_naive=breaks_naive,
            own_server=own_server or bool(server_settings) or make_server is not None,
            server_settings=server_settings or {},
            make_server=make_server,
            lacking=lacking,
        )
        return play

    return register


def all_scenarios() -> dict[str, Scenario]:
    """Every story in `faultline_drills.scenarios`, by name."""
    package = importlib.import_module("faultline_drills.scenarios")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_found.items()))


def find_scenario(name: str) -> Scenario:
    known = all_scenarios()
    if name not in known:
        raise InvalidInput(f"there is no scenario {name!r}", hint="see: faultline drill list")
    return known[name]
