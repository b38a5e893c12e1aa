"""What users import, pinned: a change here is a change for them."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import inspect
from typing import Any

import pytest

import faultline
from faultline import Faultline, Job, RetryPolicy, Task

NAMES = [
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
SIGNATURES = {
    Faultline: (
        "(database_url: 'str | None' = None, *, enqueue_timeout_seconds: 'float' = 15.0,"
        " prepare_transaction: 'PrepareTransaction | None' = None) -> 'None'"
    ),
    Faultline.task: (
        "(self, *, name: 'str | None' = None, queue: 'str' = 'default', priority: 'int' = 5,"
        " max_attempts: 'int' = 10, retry: 'RetryPolicy' = RetryPolicy(base_seconds=3.0, factor=3.0,"
        " cap_seconds=3600.0, jitter=0.3), lease_seconds: 'float | None' = None,"
        " timeout_seconds: 'float | None' = None, process: 'bool' = False)"
        " -> 'Callable[[Handler[P, R]], Task[P, R]]'"
    ),
    Faultline.get: "(self, job_id: 'UUID | str') -> 'JobRecord'",
    Faultline.get_async: "(self, job_id: 'UUID | str') -> 'JobRecord'",
    Faultline.cancel: "(self, job_id: 'UUID | str', reason: 'str | None' = None) -> 'JobState'",
    Faultline.cancel_async: (
        "(self, job_id: 'UUID | str', reason: 'str | None' = None) -> 'JobState'"
    ),
    Faultline.retry: "(self, job_id: 'UUID | str') -> 'JobState'",
    Faultline.retry_async: "(self, job_id: 'UUID | str') -> 'JobState'",
    Faultline.queues: "(self) -> 'list[QueueCount]'",
    Faultline.queues_async: "(self) -> 'list[QueueCount]'",
    Faultline.pause_queue: "(self, queue: 'str', reason: 'str | None' = None) -> 'bool'",
    Faultline.pause_queue_async: "(self, queue: 'str', reason: 'str | None' = None) -> 'bool'",
    Faultline.resume_queue: "(self, queue: 'str') -> 'bool'",
    Faultline.resume_queue_async: "(self, queue: 'str') -> 'bool'",
    Faultline.close: "(self) -> 'None'",
    Faultline.aclose: "(self) -> 'None'",
    Faultline.find_task: "(self, name: 'str') -> 'Task[Any, Any]'",
    Task.__call__: "(self, job: 'Job', /, *args: 'P.args', **kwargs: 'P.kwargs') -> 'R'",
    Task.enqueue: "(self, *args: 'Any', **kwargs: 'Any') -> 'Enqueued'",
    Task.enqueue_async: "(self, *args: 'Any', **kwargs: 'Any') -> 'Enqueued'",
    Task.enqueue_many: (
        "(self, payloads: 'Iterable[Mapping[str, Any]]', *,"
        " idempotency_keys: 'Sequence[str | None] | None' = None,"
        " run_at: 'datetime | None' = None, conn: 'Connection | None' = None) -> 'list[Enqueued]'"
    ),
    Task.enqueue_many_async: (
        "(self, payloads: 'Iterable[Mapping[str, Any]]', *,"
        " idempotency_keys: 'Sequence[str | None] | None' = None,"
        " run_at: 'datetime | None' = None, conn: 'AsyncConnection | None' = None)"
        " -> 'list[Enqueued]'"
    ),
    Job.transaction: "(self, *, isolation: 'IsolationLevel | None' = None) -> 'FencedBlock'",
    Job.fenced: "(self, conn: 'Connection | AsyncConnection | None' = None) -> 'FencedBlock'",
    Job.commit: (
        "(self, conn: 'Connection | AsyncConnection', *, result: 'Any' = None)"
        " -> 'Awaitable[None] | None'"
    ),
    Job.expect_commit: ("(self, conn: 'Connection | AsyncConnection') -> 'Awaitable[None] | None'"),
    Job.assert_fence: ("(self, conn: 'Connection | AsyncConnection') -> 'Awaitable[None] | None'"),
    RetryPolicy: (
        "(base_seconds: 'float' = 3.0, factor: 'float' = 3.0, cap_seconds: 'float' = 3600.0,"
        " jitter: 'float' = 0.3) -> None"
    ),
}
CODES = {
    "AttemptTimeout": "attempt_timeout",
    "DatabaseUnavailable": "database_unavailable",
    "FaultlineError": "faultline_error",
    "FenceNotHeld": "fence_not_held",
    "IdempotencyConflict": "idempotency_conflict",
    "IllegalTransition": "illegal_transition",
    "InvalidInput": "invalid_input",
    "InvalidSettings": "invalid_settings",
    "NotCommitted": "not_committed",
    "PayloadTooLarge": "payload_too_large",
    "Reject": "rejected",
    "SchemaMismatch": "schema_mismatch",
    "StaleLease": "stale_lease",
    "UnknownJob": "unknown_job",
    "UnknownTask": "unknown_task",
}


def test_the_public_names_are_exactly_these() -> None:
    assert faultline.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert vars(getattr(faultline, name)).get("__doc__")


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
        "id",
        "idempotency_key",
        "lease_lost",
        "lease_remaining",
        "max_attempts",
        "queue",
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
