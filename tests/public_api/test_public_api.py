"""What users import, pinned: a change here is a change for them."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import inspect
from typing import Any

import pytest

import faultline
from faultline import Batch, Faultline, Job, JobSelection, Retry, RetryPolicy, Snooze, Task

NAMES = [
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
SIGNATURES = {
    Faultline: (
        "(database_url: 'str | None' = None, *, enqueue_timeout_seconds: 'float' = 15.0,"
        " prepare_transaction: 'PrepareTransaction | None' = None, imports: 'Iterable[str]' = ())"
        " -> 'None'"
    ),
    Faultline.task: (
        "(self, handler: 'Callable[..., Any] | None' = None, *, name: 'str | None' = None,"
        " queue: 'str' = 'default', priority: 'int' = 5,"
        " max_attempts: 'int' = 10, retry: 'RetryPolicy' = RetryPolicy(base_seconds=3.0, factor=3.0,"
        " cap_seconds=3600.0, jitter=0.3, on=mappingproxy({}), give_up_on=()),"
        " lease: 'Seconds | None' = None,"
        " timeout: 'Seconds | None' = None, unique: 'Unique | None' = None, process: 'bool' = False,"
        " concurrency: 'Limit | int | None' = None, rate: 'Rate | None' = None) -> 'Any'"
    ),
    Faultline.batch_task: (
        "(self, handler: 'Callable[..., Any] | None' = None, *,"
        " arguments: 'Callable[..., Any] | None' = None, max_size: 'int' = 100,"
        " max_wait: 'Seconds' = 0.05, name: 'str | None' = None, queue: 'str' = 'default',"
        " priority: 'int' = 5, max_attempts: 'int' = 10,"
        " retry: 'RetryPolicy' = RetryPolicy(base_seconds=3.0, factor=3.0,"
        " cap_seconds=3600.0, jitter=0.3, on=mappingproxy({}), give_up_on=()),"
        " lease: 'Seconds | None' = None, timeout: 'Seconds | None' = None,"
        " unique: 'Unique | None' = None, concurrency: 'Limit | int | None' = None,"
        " rate: 'Rate | None' = None) -> 'Any'"
    ),
    Batch.transaction: (
        "(self, conn: 'Any' = None, *, isolation: 'IsolationLevel | None' = None)"
        " -> 'FencedBlock | UserBlock[Any]'"
    ),
    Batch.fenced: "(self, conn: 'Any' = None) -> 'FencedBlock | UserBlock[Any]'",
    Batch.fail: "(self, job: 'BatchJob[A]', error: 'Exception') -> 'None'",
    Batch.snooze: (
        "(self, job: 'BatchJob[A]', seconds: 'float | timedelta | None' = None, *,"
        " until: 'datetime | None' = None, reason: 'str | None' = None) -> 'None'"
    ),
    Faultline.set_limit: (
        "(self, name: 'str', *, concurrency: 'int | None' = None, rate: 'Rate | None' = None)"
        " -> 'None'"
    ),
    Faultline.reset_limit: "(self, name: 'str') -> 'str'",
    Faultline.limits: "(self) -> 'list[LimitUse]'",
    Faultline.get: "(self, job_id: 'UUID | str') -> 'JobRecord'",
    Faultline.get_async: "(self, job_id: 'UUID | str') -> 'JobRecord'",
    Faultline.result: (
        "(self, job_id: 'UUID | str', timeout: 'float | timedelta | None' = None) -> 'Any'"
    ),
    Faultline.result_async: (
        "(self, job_id: 'UUID | str', timeout: 'float | timedelta | None' = None) -> 'Any'"
    ),
    Faultline.cancel: "(self, job_id: 'UUID | str', reason: 'str | None' = None) -> 'JobState'",
    Faultline.cancel_async: (
        "(self, job_id: 'UUID | str', reason: 'str | None' = None) -> 'JobState'"
    ),
    Faultline.retry: "(self, job_id: 'UUID | str') -> 'JobState'",
    Faultline.retry_async: "(self, job_id: 'UUID | str') -> 'JobState'",
    Faultline.delete: "(self, job_id: 'UUID | str') -> 'JobState'",
    Faultline.delete_async: "(self, job_id: 'UUID | str') -> 'JobState'",
    Faultline.edit: (
        "(self, job_id: 'UUID | str', payload: 'Mapping[str, Any]', *, force: 'bool' = False)"
        " -> 'JobState'"
    ),
    Faultline.edit_async: (
        "(self, job_id: 'UUID | str', payload: 'Mapping[str, Any]', *, force: 'bool' = False)"
        " -> 'JobState'"
    ),
    Faultline.jobs: "(self, **wanted: 'Unpack[FilterArguments]') -> 'JobSelection'",
    JobSelection.count: "(self) -> 'int'",
    JobSelection.count_async: "(self) -> 'int'",
    JobSelection.retry: "(self, *, dry_run: 'bool' = False) -> 'ActionReport'",
    JobSelection.retry_async: "(self, *, dry_run: 'bool' = False) -> 'ActionReport'",
    JobSelection.cancel: "(self, reason: 'str | None' = None, *, dry_run: 'bool' = False)"
    " -> 'ActionReport'",
    JobSelection.cancel_async: "(self, reason: 'str | None' = None, *, dry_run: 'bool' = False)"
    " -> 'ActionReport'",
    JobSelection.delete: "(self, *, dry_run: 'bool' = False) -> 'ActionReport'",
    JobSelection.delete_async: "(self, *, dry_run: 'bool' = False) -> 'ActionReport'",
    JobSelection.edit: "(self, changes: 'Mapping[str, Any] | None' = None, /, *, dry_run: 'bool' = False,"
    " force: 'bool' = False, **fields: 'Any') -> 'ActionReport'",
    JobSelection.edit_async: "(self, changes: 'Mapping[str, Any] | None' = None, /, *,"
    " dry_run: 'bool' = False, force: 'bool' = False, **fields: 'Any') -> 'ActionReport'",
    JobSelection.export: "(self, file: 'str | Path | IO[bytes]') -> 'int'",
    JobSelection.export_async: "(self, file: 'str | Path | IO[bytes]') -> 'int'",
    Faultline.queues: "(self) -> 'list[QueueCount]'",
    Faultline.queues_async: "(self) -> 'list[QueueCount]'",
    Faultline.pause_queue: "(self, queue: 'str', reason: 'str | None' = None) -> 'bool'",
    Faultline.pause_queue_async: "(self, queue: 'str', reason: 'str | None' = None) -> 'bool'",
    Faultline.resume_queue: "(self, queue: 'str') -> 'bool'",
    Faultline.resume_queue_async: "(self, queue: 'str') -> 'bool'",
    Faultline.schedule: (
        "(self, what: 'JobSpec | str | None' = None, cron: 'str | None' = None, /, *,"
        " every: 'Seconds | None' = None, tz: 'str' = 'UTC', anchor: 'datetime | None' = None,"
        " name: 'str | None' = None, missed: 'str' = <Missed.ONCE: 'once'>, missed_limit: 'int' = 100,"
        " jitter: 'Seconds' = 0) -> 'Any'"
    ),
    Faultline.schedules: "(self) -> 'list[ScheduleRecord]'",
    Faultline.schedules_async: "(self) -> 'list[ScheduleRecord]'",
    Faultline.pause_schedule: "(self, name: 'str', reason: 'str | None' = None) -> 'bool'",
    Faultline.pause_schedule_async: "(self, name: 'str', reason: 'str | None' = None) -> 'bool'",
    Faultline.resume_schedule: "(self, name: 'str') -> 'bool'",
    Faultline.resume_schedule_async: "(self, name: 'str') -> 'bool'",
    Faultline.run_schedule: "(self, name: 'str') -> 'UUID'",
    Faultline.run_schedule_async: "(self, name: 'str') -> 'UUID'",
    Faultline.remove_schedule: "(self, name: 'str') -> 'None'",
    Faultline.remove_schedule_async: "(self, name: 'str') -> 'None'",
    Faultline.close: "(self) -> 'None'",
    Faultline.aclose: "(self) -> 'None'",
    Faultline.autodiscover: "(self, *packages: 'str') -> 'None'",
    Faultline.import_tasks: "(self) -> 'None'",
    Faultline.run_worker: (
        "(self, queues: 'Sequence[str] | GivenShares | None' = None, *, concurrency: 'int | None' = None,"
        " drain_seconds: 'float | None' = None, max_jobs: 'int | None' = None,"
        " reconciler: 'bool' = True, retention: 'Retention | None' = None,"
        " settings: 'WorkerSettings | None' = None) -> 'None'"
    ),
    Faultline.worker: (
        "(self, queues: 'Sequence[str] | GivenShares | None' = None, *, concurrency: 'int | None' = None,"
        " drain_seconds: 'float | None' = None, max_jobs: 'int | None' = None,"
        " reconciler: 'bool' = True, retention: 'Retention | None' = None,"
        " settings: 'WorkerSettings | None' = None) -> 'RunningWorker'"
    ),
    Faultline.find_task: "(self, name: 'str') -> 'Task[Any, Any]'",
    Task.__call__: "(self, *args: 'Any', **kwargs: 'Any') -> 'Any'",  # typed for type checkers
    Faultline.enqueue: (
        "(self, job: 'JobSpec', *, conn: 'AnyConnection | None' = None) -> 'Enqueued'"
    ),
    Faultline.enqueue_many: (
        "(self, jobs: 'Iterable[JobSpec]', *, conn: 'AnyConnection | None' = None)"
        " -> 'list[Enqueued]'"
    ),
    Task.enqueue: "(self, /, *args: 'P.args', **kwargs: 'P.kwargs') -> 'Enqueued'",
    Task.enqueue_async: "(self, /, *args: 'P.args', **kwargs: 'P.kwargs') -> 'Enqueued'",
    Task.job: "(self, /, *args: 'P.args', **kwargs: 'P.kwargs') -> 'JobSpec'",
    Task.options: (
        "(self, *, queue: 'str | None' = None, priority: 'int | None' = None,"
        " run_at: 'datetime | None' = None, delay: 'Seconds | None' = None,"
        " expires_in: 'Seconds | None' = None, idempotency_key: 'str | None' = None,"
        " max_attempts: 'int | None' = None, timeout: 'Seconds | None' = None,"
        " lease: 'Seconds | None' = None, unique: 'Unique | None' = None,"
        " tags: 'Iterable[str] | None' = None,"
        " conn: 'AnyConnection | None' = None)"
        " -> 'ConfiguredTask[P]'"
    ),
    Task.enqueue_many: (
        "(self, payloads: 'Iterable[Mapping[str, Any]]', *,"
        " idempotency_keys: 'Sequence[str | None] | None' = None) -> 'list[Enqueued]'"
    ),
    Task.enqueue_many_async: (
        "(self, payloads: 'Iterable[Mapping[str, Any]]', *,"
        " idempotency_keys: 'Sequence[str | None] | None' = None) -> 'list[Enqueued]'"
    ),
    Job.transaction: (
        "(self, conn: 'Any' = None, *, isolation: 'IsolationLevel | None' = None)"
        " -> 'FencedBlock | UserBlock[Any]'"
    ),
    Job.fenced: "(self, conn: 'Any' = None) -> 'FencedBlock | UserBlock[Any]'",
    Job.commit: (
        "(self, conn: 'AnyConnection', *, result: 'Any' = None) -> 'Awaitable[None] | None'"
    ),
    Job.expect_commit: "(self, conn: 'AnyConnection') -> 'Awaitable[None] | None'",
    Job.assert_fence: "(self, conn: 'AnyConnection') -> 'Awaitable[None] | None'",
    RetryPolicy: (
        "(base_seconds: 'float' = 3.0, factor: 'float' = 3.0, cap_seconds: 'float' = 3600.0,"
        " jitter: 'float' = 0.3, *, on: 'Mapping[type[Exception], Delays]' = <factory>,"
        " give_up_on: 'tuple[type[Exception], ...]' = ()) -> None"
    ),
    Snooze: (
        "(seconds: 'float | timedelta | None' = None, *, until: 'datetime | None' = None,"
        " reason: 'str | None' = None) -> 'None'"
    ),
    Retry: "(after: 'float | timedelta', *, reason: 'str | None' = None) -> 'None'",
    Job.progress: "(self, fraction: 'float', message: 'str | None' = None) -> 'None'",
}
CODES = {
    "AttemptTimeout": "attempt_timeout",
    "DatabaseUnavailable": "database_unavailable",
    "FaultlineError": "faultline_error",
    "FenceNotHeld": "fence_not_held",
    "IdempotencyConflict": "idempotency_conflict",
    "IllegalTransition": "illegal_transition",
    "InvalidInput": "invalid_input",
    "InvalidSchedule": "invalid_schedule",
    "InvalidSettings": "invalid_settings",
    "JobFailed": "job_failed",
    "NoTasks": "no_tasks",
    "NotCommitted": "not_committed",
    "PayloadTooLarge": "payload_too_large",
    "Reject": "rejected",
    "ResultTimeout": "result_timeout",
    "Retry": "retry_requested",
    "SchemaMismatch": "schema_mismatch",
    "Snooze": "snoozed",
    "StaleLease": "stale_lease",
    "UniqueKeyHeld": "unique_key_held",
    "UnknownJob": "unknown_job",
    "UnknownLimit": "unknown_limit",
    "UnknownSchedule": "unknown_schedule",
    "UnknownTask": "unknown_task",
}


def test_the_public_names_are_exactly_these() -> None:
    assert faultline.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_docstring(name: str) -> None:
    found = getattr(faultline, name)
    assert found.__doc__ if inspect.isfunction(found) else vars(found).get("__doc__")


@pytest.mark.parametrize("member", SIGNATURES, ids=lambda member: str(member.__qualname__))
def test_the_public_signatures_are_exactly_these(member: Any) -> None:
    assert str(inspect.signature(member)) == SIGNATURES[member]


def test_the_public_attributes_of_a_job_are_exactly_these() -> None:
    properties = {
        name
        for name, value in vars(Job).items()
        if isinstance(value, property) and not name.startswith("_")
    }
    assert properties == {
        "attempt",
        "effect_key",
        "id",
        "lease_lost",
        "lease_remaining",
        "max_attempts",
        "queue",
        "scheduled_for",
        "task",
        "token",
    }


def test_every_error_has_a_stable_code_and_one_base_class() -> None:
    errors = {
        name: getattr(faultline, name)
        for name in NAMES
        if isinstance(getattr(faultline, name), type)
        and issubclass(getattr(faultline, name), BaseException)
    }
    assert {name: error.code for name, error in errors.items()} == CODES
    assert all(issubclass(error, faultline.FaultlineError) for error in errors.values())


def test_the_version_is_that_of_the_package() -> None:
    assert faultline.__version__ == importlib.metadata.version("faultline-queue")


def test_the_package_ships_its_type_hints() -> None:
    assert importlib.resources.files("faultline").joinpath("py.typed").is_file()
