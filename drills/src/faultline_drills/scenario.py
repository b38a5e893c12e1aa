"""Scenarios: their type, the decorator that registers one, and the list of all."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faultline.errors import InvalidInput
from faultline.suggestions import did_you_mean
from faultline_drills.subjects import Subject

if TYPE_CHECKING:
    from faultline.embedded import Server
    from faultline_drills.context import DrillContext

RunScenario = Callable[["DrillContext"], None]
MakeServer = Callable[..., AbstractContextManager["Server"]]


@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    seed: int = 1
    jobs: int = 12
    workers: int = 2
    fault_rate: float = 0.5  # the share of jobs with a fault, in scenarios that draw them
    lease_seconds: float = 1.0
    timeout_seconds: float = 60.0
    subject: Subject = Subject.FAULTLINE

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.workers < 1:
            raise InvalidInput("a drill needs at least one job and one worker")
        if not 0 < self.fault_rate <= 1:
            raise InvalidInput("--fault-rate must be above 0 and at most 1 (0.1 for 10 %)")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str
    description: str
    run: RunScenario
    shows: tuple[str, ...]  # counts that must be above 0, or the verdict is unknown
    breaks_naive: bool  # whether the verdict on the control must be invalid
    own_server: bool  # it breaks its server, and so never runs on an existing one
    server_settings: Mapping[str, str] = field(default_factory=dict)
    make_server: MakeServer | None = None  # called with `settings`; None: temporary_server
    missing_requirement: Callable[[], str | None] = lambda: (
        None
    )  # what this machine lacks; None: nothing

    @property
    def title(self) -> str:
        """The first paragraph of the description, in one line."""
        return " ".join(self.description.split("\n\n")[0].split())


_found: dict[str, Scenario] = {}


def scenario(
    *,
    shows: tuple[str, ...],
    breaks_naive: bool = False,
    own_server: bool = False,
    server_settings: Mapping[str, str] | None = None,
    make_server: MakeServer | None = None,
    missing_requirement: Callable[[], str | None] = lambda: None,
) -> Callable[[RunScenario], RunScenario]:
    """Register a function as a scenario, described by its or its module's docstring."""

    def register(run: RunScenario) -> RunScenario:
        module = inspect.getmodule(run)
        name = run.__name__
        if name in _found:
            raise ValueError(f"two scenarios are named {name}")
        _found[name] = Scenario(
            name=name,
            description=inspect.cleandoc(run.__doc__ or (module.__doc__ if module else None) or ""),
            run=run,
            shows=shows,
            breaks_naive=breaks_naive,
            own_server=own_server or bool(server_settings) or make_server is not None,
            server_settings=server_settings or {},
            make_server=make_server,
            missing_requirement=missing_requirement,
        )
        return run

    return register


def all_scenarios() -> dict[str, Scenario]:
    """Every scenario in `faultline_drills.scenarios`, by name."""
    package = importlib.import_module("faultline_drills.scenarios")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_found.items()))


def complete_scenario(ctx: object, param: object, incomplete: str) -> list[str]:
    """For a shell: the scenarios whose names begin like this."""
    return [name for name in all_scenarios() if name.startswith(incomplete)]


def find_scenario(name: str) -> Scenario:
    known = all_scenarios()
    if name not in known:
        hint = did_you_mean(name, known) or "see: faultline drill list"
        raise InvalidInput(f"there is no scenario {name!r}", hint=hint)
    return known[name]
