"""Tools for testing handlers: databases, an inline worker, time, fault injection."""

from faultline.testing.application import using
from faultline.testing.clock import advance
from faultline.testing.databases import Databases, temporary_database, temporary_databases
from faultline.testing.inline_worker import (
    Attempted,
    HandlerFailed,
    NotIdle,
    Outcome,
    ResultDiscarded,
    run_one,
    run_one_async,
    run_until_idle,
    run_until_idle_async,
)
from faultline.testing.zombies import (
    ALL_FAULTS,
    Fault,
    NotExercised,
    Outside,
    Point,
    PointKind,
    Run,
    TokenRefused,
    Verdict,
    ZombieEffect,
    ZombieReport,
    zombies,
)

__all__ = [
    "ALL_FAULTS",
    "Attempted",
    "Databases",
    "Fault",
    "HandlerFailed",
    "NotExercised",
    "NotIdle",
    "Outcome",
    "Outside",
    "Point",
    "PointKind",
    "ResultDiscarded",
    "Run",
    "TokenRefused",
    "Verdict",
    "ZombieEffect",
    "ZombieReport",
    "advance",
    "run_one",
    "run_one_async",
    "run_until_idle",
    "run_until_idle_async",
    "temporary_database",
    "temporary_databases",
    "using",
    "zombies",
]
