"""The JSON bodies of requests and responses, as pydantic models.

The library's own functions check every job. The JSON schemas here describe those checks for clients.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from faultline.errors import InvalidInput
from faultline.model import JobState
from faultline.payload import (
    MAX_KEY_LENGTH,
    check_idempotency_key,
    check_max_attempts,
    check_priority,
    check_queue_name,
    check_task_name,
    encode_json,
    encode_payload,
)

_TASK = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$"}
_QUEUE = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$"}
_KEY = {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_KEY_LENGTH}
_TIME = {"type": ["string", "null"], "format": "date-time"}
_REASON = {"type": ["string", "null"]}
_PAYLOAD = {
    "type": "object",
    "description": "The task's arguments by name: at most 1 MiB of JSON, 64 levels deep; integers"
    " of at most 64 bits, no NUL characters.",
    "additionalProperties": True,
}


def _check_payload(payload: Any) -> dict[str, Any]:
    encode_payload(payload)
    return dict(payload)


def _check_key(key: Any) -> str | None:
    return None if key is None else check_idempotency_key(key)


def _check_priority(number: Any) -> int:
    return check_priority(_whole(number))


def _check_max_attempts(number: Any) -> int:
    return check_max_attempts(_whole(number))


def _whole(number: Any) -> Any:
    """JSON has one type of number: 5.0 is the integer 5."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _check_time(text: Any) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInput(
            f"run_at {str(text)[:80]!r} is not an ISO time with a zone",
            hint="2030-01-31T09:00:00+01:00",
        )
    return time


def _check_reason(reason: Any) -> str | None:
    if reason is not None and not isinstance(reason, str):
        raise InvalidInput(f"a reason is a string, not a {type(reason).__name__}")
    encode_json(reason, what="the reason")
    return reason


TaskName = Annotated[str, PlainValidator(check_task_name), WithJsonSchema(_TASK)]
QueueName = Annotated[str, PlainValidator(check_queue_name), WithJsonSchema(_QUEUE)]
Payload = Annotated[dict[str, Any], PlainValidator(_check_payload), WithJsonSchema(_PAYLOAD)]


class JobRequest(BaseModel):
    """A job to enqueue."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "task": "shop.charge",
                    "payload": {"invoice": 42},
                    "queue": "billing",
                    "idempotency_key": "invoice-42",
                }
            ]
        },
    )

    task: TaskName = Field(description="The name of the task.")
    payload: Payload = Field(default_factory=dict)
    queue: Annotated[str | None, PlainValidator(check_queue_name), WithJsonSchema(_QUEUE)] = Field(
        None, description="Default: the task's queue, else `default`."
    )
    priority: Annotated[
        int | None,
        PlainValidator(_check_priority),
        WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 9}),
    ] = Field(None, description="0 (first) to 9 (last). Default: the task's priority, else 5.")
    max_attempts: Annotated[
        int | None,
        PlainValidator(_check_max_attempts),
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 1000}),
    ] = Field(None, description="Default: the task's, else 5.")
    run_at: Annotated[datetime | None, PlainValidator(_check_time), WithJsonSchema(_TIME)] = Field(
        None, description="Not claimed before this time; with a time zone."
    )
    idempotency_key: Annotated[str | None, PlainValidator(_check_key), WithJsonSchema(_KEY)] = (
        Field(None, description="Two requests with the same key create one job.")
    )


class BatchRequest(BaseModel):
    """Jobs to enqueue in one transaction."""

    model_config = ConfigDict(extra="forbid")

    # Checked one by one in `enqueueing`, where errors name the job's position.
    jobs: Annotated[
        list[Any],
        WithJsonSchema(
            {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/JobRequest"}}
        ),
    ]


class ReasonRequest(BaseModel):
    """A reason, which is stored."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "test"}]})

    reason: Annotated[str | None, PlainValidator(_check_reason), WithJsonSchema(_REASON)] = None


# ── responses ────────────────────────────────────────────────────────────────────────────────────


class ErrorDetail(BaseModel):
    code: str = Field(description="Stable between releases; the message may change.")
    message: str
    hint: str | None = Field(description="What to do about it.")


class ErrorAnswer(BaseModel):
    error: ErrorDetail


class EnqueuedAnswer(BaseModel):
    job_id: str = Field(json_schema_extra={"format": "uuid"})
    existing: bool = Field(
        description="Whether an earlier request with this idempotency key created it."
    )


class BatchAnswer(BaseModel):
    jobs: list[EnqueuedAnswer] = Field(description="In the order of the request.")
    queued: int
    existing: int


class JobSummary(BaseModel):
    id: str = Field(json_schema_extra={"format": "uuid"})
    task: str
    queue: str
    priority: int
    state: JobState
    failed_reason: str | None
    attempts: int
    max_attempts: int
    fencing_token: int
    idempotency_key: str | None
    next_run_at: datetime
    claimed_at: datetime | None
    created_at: datetime
    finished_at: datetime | None


class JobAnswer(JobSummary):
    lease_owner: str | None
    lease_expires_at: datetime | None
    last_error: str | None
    payload: Any = Field(description="As it is stored.")
    result: Any = Field(description="The handler's result; null until the job has succeeded.")


class JobPage(BaseModel):
    jobs: list[JobSummary]
    next: str | None = Field(
        description="`before` of the next page; null at the end. A filtered page may have fewer jobs"
        " than asked for, even none, and still have a next."
    )


class StateAnswer(BaseModel):
    job_id: str = Field(json_schema_extra={"format": "uuid"})
    state: JobState = Field(description="The job's state after the request.")


class PauseAnswer(BaseModel):
    queue: str
    paused: bool
    changed: bool = Field(description="Whether this request changed it.")


class Count(BaseModel):
    at_least: int
    is_exact: bool
    estimate: int | None = Field(
        description="From the table's statistics, if the count is not exact."
    )
    oldest_seconds: float | None = Field(
        description="Age of the oldest job; negative: seconds until it is due."
    )


class QueueSummary(BaseModel):
    queue: str
    paused: bool
    paused_reason: str | None
    due: Count
    scheduled: Count
    running: Count
    failed: Count
    succeeded: Count


class QueuesAnswer(BaseModel):
    queues: list[QueueSummary]


class KeyAnswer(BaseModel):
    name: str | None = Field(description="Null if the server requires no keys.")
    scopes: list[str] = Field(examples=[["operate", "read"]])


class AuditEntry(BaseModel):
    id: str
    at: datetime
    actor_kind: str = Field(examples=["key"])
    actor: str = Field(examples=["oncall (flk_ab12cd34)"])
    role: str = Field(description="The account of the database session.")
    address: str | None
    action: str = Field(examples=["pause"])
    object: str | None = Field(examples=["queue mail"])
    result: str = Field(examples=["done", "unchanged", "refused"])
    code: str | None
    detail: str | None
    times: int = Field(description="How many equal refusals this entry counts.")


class AuditPage(BaseModel):
    audit: list[AuditEntry]
    next: str | None = Field(description="`before` of the next page; null at the end.")


class HealthAnswer(BaseModel):
    status: str
    database_seconds: float = Field(description="The database's response time for this request.")


class ReadyAnswer(BaseModel):
    status: str
