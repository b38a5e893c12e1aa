"""Faultline: a crash-safe job queue on PostgreSQL. Your writes commit under a fence, or not at all."""

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
from faultline.model import Enqueued, JobRecord, JobState, RetryPolicy, StaleReason
from faultline.queue_inspection import QueueCount, Standing
from faultline.task import Task

__version__ = "0.1.0"

__all__ = [
    "AttemptTimeout",
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
    "Standing",
    "Task",
    "UnknownJob",
    "UnknownTask",
]
