"""Faultline, a crash-safe job queue on PostgreSQL: the names that users import."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultline.app import Faultline
    from faultline.batch import Batch, BatchJob
    from faultline.batch_task import BatchTask
    from faultline.config import Retention, WorkerSettings
    from faultline.enqueueable import ConfiguredTask
    from faultline.errors import (
        AttemptTimeout,
        DatabaseUnavailable,
        FaultlineError,
        FenceNotHeld,
        IdempotencyConflict,
        IllegalTransition,
        InvalidInput,
        InvalidSchedule,
        InvalidSettings,
        JobFailed,
        NoTasks,
        NotCommitted,
        PayloadTooLarge,
        Reject,
        ResultTimeout,
        SchemaMismatch,
        StaleLease,
        UniqueKeyHeld,
        UnknownJob,
        UnknownLimit,
        UnknownSchedule,
        UnknownTask,
    )
    from faultline.job import Job
    from faultline.job_selection import JobSelection
    from faultline.limits import Limit, Rate
    from faultline.logs import current_job
    from faultline.model import (
        Enqueued,
        EnqueueOutcome,
        JobRecord,
        JobSpec,
        JobState,
        ReportedProgress,
        StaleReason,
    )
    from faultline.queue_shares import QueueShare
    from faultline.retry_control import Retry, Snooze
    from faultline.retry_policy import RetryPolicy
    from faultline.schedules import Schedule
    from faultline.statements.limits import LimitUse
    from faultline.statements.many_jobs import ActionReport
    from faultline.statements.queues import CountedState, QueueCount
    from faultline.statements.schedules import ScheduleRecord
    from faultline.task import Task
    from faultline.unique import Unique

__version__ = "0.1.0"

# The module of each name. A module is imported on first use, so that a program that needs a small part of
# Faultline, such as a probe, does not load the driver.
_HOMES = {
    "ActionReport": "faultline.statements.many_jobs",
    "AttemptTimeout": "faultline.errors",
    "Batch": "faultline.batch",
    "BatchJob": "faultline.batch",
    "BatchTask": "faultline.batch_task",
    "ConfiguredTask": "faultline.enqueueable",
    "DatabaseUnavailable": "faultline.errors",
    "EnqueueOutcome": "faultline.model",
    "Enqueued": "faultline.model",
    "Faultline": "faultline.app",
    "FaultlineError": "faultline.errors",
    "FenceNotHeld": "faultline.errors",
    "IdempotencyConflict": "faultline.errors",
    "IllegalTransition": "faultline.errors",
    "InvalidInput": "faultline.errors",
    "InvalidSchedule": "faultline.errors",
    "InvalidSettings": "faultline.errors",
    "Job": "faultline.job",
    "JobFailed": "faultline.errors",
    "JobRecord": "faultline.model",
    "JobSelection": "faultline.job_selection",
    "JobSpec": "faultline.model",
    "JobState": "faultline.model",
    "Limit": "faultline.limits",
    "LimitUse": "faultline.statements.limits",
    "NoTasks": "faultline.errors",
    "NotCommitted": "faultline.errors",
    "PayloadTooLarge": "faultline.errors",
    "QueueCount": "faultline.statements.queues",
    "QueueShare": "faultline.queue_shares",
    "Rate": "faultline.limits",
    "Reject": "faultline.errors",
    "ReportedProgress": "faultline.model",
    "ResultTimeout": "faultline.errors",
    "Retention": "faultline.config",
    "Retry": "faultline.retry_control",
    "RetryPolicy": "faultline.retry_policy",
    "Schedule": "faultline.schedules",
    "ScheduleRecord": "faultline.statements.schedules",
    "SchemaMismatch": "faultline.errors",
    "Snooze": "faultline.retry_control",
    "StaleLease": "faultline.errors",
    "StaleReason": "faultline.model",
    "CountedState": "faultline.statements.queues",
    "Task": "faultline.task",
    "Unique": "faultline.unique",
    "UniqueKeyHeld": "faultline.errors",
    "UnknownJob": "faultline.errors",
    "UnknownLimit": "faultline.errors",
    "UnknownSchedule": "faultline.errors",
    "UnknownTask": "faultline.errors",
    "WorkerSettings": "faultline.config",
    "current_job": "faultline.logs",
}

__all__ = [
    "ActionReport",
    "AttemptTimeout",
    "Batch",
    "BatchJob",
    "BatchTask",
    "ConfiguredTask",
    "CountedState",
    "DatabaseUnavailable",
    "EnqueueOutcome",
    "Enqueued",
    "Faultline",
    "FaultlineError",
    "FenceNotHeld",
    "IdempotencyConflict",
    "IllegalTransition",
    "InvalidInput",
    "InvalidSchedule",
    "InvalidSettings",
    "Job",
    "JobFailed",
    "JobRecord",
    "JobSelection",
    "JobSpec",
    "JobState",
    "Limit",
    "LimitUse",
    "NoTasks",
    "NotCommitted",
    "PayloadTooLarge",
    "QueueCount",
    "QueueShare",
    "Rate",
    "Reject",
    "ReportedProgress",
    "ResultTimeout",
    "Retention",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "ScheduleRecord",
    "SchemaMismatch",
    "Snooze",
    "StaleLease",
    "StaleReason",
    "Task",
    "Unique",
    "UniqueKeyHeld",
    "UnknownJob",
    "UnknownLimit",
    "UnknownSchedule",
    "UnknownTask",
    "WorkerSettings",
    "current_job",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
