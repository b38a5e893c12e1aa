"""The result of one check of `doctor`, and its level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from faultline.postgres.sessions import Connection


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    level: Level
    says: str
    advice: str | None = None


CheckFunction = Callable[[Connection], Iterator[Check]]


def ok(name: str, says: str, advice: str | None = None) -> Check:
    return Check(name, Level.OK, says, advice)


def warning(name: str, says: str, advice: str) -> Check:
    return Check(name, Level.WARNING, says, advice)


def problem(name: str, says: str, advice: str | None) -> Check:
    return Check(name, Level.PROBLEM, says, advice)
