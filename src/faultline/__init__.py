"""Faultline, a crash-safe job queue on PostgreSQL: the names that users import."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultline.app import Faultline
    from faultline.errors import (
        AttemptTimeout,
        DatabaseUnavailable,
        FaultlineError,
        FenceNotHeld,
        IdempotencyConflict,
        IllegalTransition,
        InvalidInput,
        InvalidSettings,
        NotCommitted,
        PayloadTooLarge,
        Reject,
        SchemaMismatch,
        StaleLease,
        UnknownJob,
        UnknownTask,
    )
    from faultline.job import Job
    from faultline.model import Enqueued, JobRecord, JobState, StaleReason
    from faultline.retry_policy import RetryPolicy
    from faultline.statements.queues import CountedState, QueueCount
    from faultline.task import Task

__version__ = "0.1.0"

# The module of each name. A module is imported on first use, so that a program that needs a small part of
# Faultline, such as a probe, does not load the driver.
_HOMES = {
    "AttemptTimeout": "faultline.errors",
    "DatabaseUnavailable": "faultline.errors",
    "Enqueued": "faultline.model",
    "Faultline": "faultline.app",
    "FaultlineError": "faultline.errors",
    "FenceNotHeld": "faultline.errors",
    "IdempotencyConflict": "faultline.errors",
    "IllegalTransition": "faultline.errors",
    "InvalidInput": "faultline.errors",
    "InvalidSettings": "faultline.errors",
    "Job": "faultline.job",
    "JobRecord": "faultline.model",
    "JobState": "faultline.model",
    "NotCommitted": "faultline.errors",
    "PayloadTooLarge": "faultline.errors",
    "QueueCount": "faultline.statements.queues",
    "Reject": "faultline.errors",
    "RetryPolicy": "faultline.retry_policy",
    "SchemaMismatch": "faultline.errors",
    "StaleLease": "faultline.errors",
    "StaleReason": "faultline.model",
    "CountedState": "faultline.statements.queues",
    "Task": "faultline.task",
    "UnknownJob": "faultline.errors",
    "UnknownTask": "faultline.errors",
}

__all__ = [
    "AttemptTimeout",
    "CountedState",
    "DatabaseUnavailable",
    "Enqueued",
    "Faultline",
    "FaultlineError",
    "FenceNotHeld",
    "IdempotencyConflict",
    "IllegalTransition",
    "InvalidInput",
    "InvalidSettings",
    "Job",
    "JobRecord",
    "JobState",
    "NotCommitted",
    "PayloadTooLarge",
    "QueueCount",
    "Reject",
    "RetryPolicy",
    "SchemaMismatch",
    "StaleLease",
    "StaleReason",
    "Task",
    "UnknownJob",
    "UnknownTask",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
