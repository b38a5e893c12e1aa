"""The JSON bodies of requests and responses, as pydantic models.

The library's own functions check every job. The JSON schemas here describe those checks for clients.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from faultline.api.unique_request import UniqueRequest
from faultline.config import LONGEST_LEASE_SECONDS, LONGEST_RETRY_SECONDS, SHORTEST_LEASE_SECONDS
from faultline.enqueue_options import seconds_of
from faultline.errors import InvalidInput
from faultline.model import EnqueueOutcome, JobState
from faultline.payload import (
    MAX_KEY_LENGTH,
    MAX_TAGS,
    TAG,
    check_idempotency_key,
    check_max_attempts,
    check_priority,
    check_queue_name,
    check_tag,
    check_task_name,
    checked_tags,
    encode_json,
    encode_payload,
)
from faultline.wording import with_article

_TASK = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$"}
_QUEUE = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$"}
_TAG = {"type": "string", "pattern": f"^{TAG}$"}
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


def _check_time(text: Any, what: str = "run_at") -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInput(
            f"{what} {str(text)[:80]!r} is not an ISO time with a zone",
            hint="2030-01-31T09:00:00+01:00",
        )
    return time


def _check_tags(tags: Any) -> tuple[str, ...] | None:
    return None if tags is None else checked_tags(tags)


def _check_reason(reason: Any) -> str | None:
    if reason is not None and not isinstance(reason, str):
        raise InvalidInput(f"a reason is a string, not {with_article(type(reason).__name__)}")
    encode_json(reason, what="the reason")
    return reason


def _check_text(text: Any) -> str:
    if not isinstance(text, str):
        raise InvalidInput(
            f"a failed_reason or an error is a string, not {with_article(type(text).__name__)}"
        )
    encode_json(text, what="the filter")
    return text


def _check_moment(text: Any) -> datetime | None:
    return _check_time("" if text is None else text, "the time")


TaskName = Annotated[str, PlainValidator(check_task_name), WithJsonSchema(_TASK)]
QueueName = Annotated[str, PlainValidator(check_queue_name), WithJsonSchema(_QUEUE)]
Reason = Annotated[str | None, PlainValidator(_check_reason), WithJsonSchema(_REASON)]
Payload = Annotated[dict[str, Any], PlainValidator(_check_payload), WithJsonSchema(_PAYLOAD)]


# A condition may be missing, and is not null.
_Queue = Annotated[str | None, PlainValidator(check_queue_name), WithJsonSchema(_QUEUE)]
_Task = Annotated[str | None, PlainValidator(check_task_name), WithJsonSchema(_TASK)]
_Tag = Annotated[str | None, PlainValidator(check_tag), WithJsonSchema(_TAG)]
_Text = Annotated[str | None, PlainValidator(_check_text), WithJsonSchema({"type": "string"})]
_Moment = Annotated[
    datetime | None,
    PlainValidator(_check_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class JobConditions(BaseModel):
    """The values that jobs must have; a missing one allows any."""

    model_config = ConfigDict(extra="forbid")

    queue: _Queue = Field(None, description="Only jobs of this queue.")
    task: _Task = Field(None, description="Only jobs of this task.")
    tag: _Tag = Field(None, description="Only jobs with this tag.")
    failed_reason: _Text = Field(None, description="Only jobs that failed for this reason.")
    error: _Text = Field(None, description="Only jobs whose last error has this class.")
    created_after: _Moment = Field(None, description="Only jobs created at this time or later.")
    created_before: _Moment = Field(None, description="Only jobs created before this time.")
    finished_after: _Moment = Field(None, description="Only jobs finished at this time or later.")
    finished_before: _Moment = Field(None, description="Only jobs finished before this time.")


class PayloadRequest(BaseModel):
    """A new payload for a job."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"payload": {"invoice": 43}}]}
    )

    payload: Payload


def _seconds(name: str, longest: float, *, shortest: float | None = None) -> Any:
    """A number of seconds, checked like the options of a task."""

    def check(given: Any) -> float | None:
        return seconds_of(name, given, longest, shortest=shortest)

    least = {"exclusiveMinimum": 0} if shortest is None else {"minimum": shortest}
    schema = {"type": ["number", "null"], **least, "maximum": longest}
    return PlainValidator(check), WithJsonSchema(schema)


Delay = Annotated[float | None, *_seconds("delay", LONGEST_RETRY_SECONDS, shortest=0)]
Expiry = Annotated[float | None, *_seconds("expires_in", LONGEST_RETRY_SECONDS)]
Timeout = Annotated[float | None, *_seconds("timeout", LONGEST_RETRY_SECONDS)]
LeaseLength = Annotated[
    float | None, *_seconds("lease", LONGEST_LEASE_SECONDS, shortest=SHORTEST_LEASE_SECONDS)
]


Tags = Annotated[
    tuple[str, ...] | None,
    PlainValidator(_check_tags),
    WithJsonSchema({"type": ["array", "null"], "items": _TAG, "maxItems": MAX_TAGS}),
]


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
                },
                {
                    "task": "shop.sync",
                    "payload": {"customer_id": 7},
                    "unique": {"by": ["customer_id"], "while": "queued"},
                },
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
    ] = Field(None, description="Default: the task's, else 10.")
    run_at: Annotated[datetime | None, PlainValidator(_check_time), WithJsonSchema(_TIME)] = Field(
        None, description="Not claimed before this time; with a time zone. Excludes `delay`."
    )
    delay: Delay = Field(
        None, description="Not claimed before so many seconds from now. Excludes `run_at`."
    )
    expires_in: Expiry = Field(
        None,
        description="The job fails if it has not started within so many seconds."
        " More than `delay`, and later than `run_at`.",
    )
    timeout: Timeout = Field(None, description="Seconds for an attempt. Default: the task's.")
    lease: LeaseLength = Field(None, description="Seconds of its lease. Default: the task's.")
    idempotency_key: Annotated[str | None, PlainValidator(_check_key), WithJsonSchema(_KEY)] = (
        Field(None, description="Two requests with the same key create one job.")
    )
    tags: Tags = Field(None, description="Words to find the job by, up to 20.")
    unique: UniqueRequest | None = Field(
        None, description="At most one job with equal arguments. Default: the task's."
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

    reason: Reason = None


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
        description="Whether an earlier request with its idempotency or unique key created it."
    )
    outcome: EnqueueOutcome = Field(
        description="`existing`: the job of the idempotency key. `kept`, `replaced` and"
        " `rescheduled`: what happened to the job of the unique key."
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
    waits_for: str | None = Field(
        description="The limit key that a queued job waits for, since `next_run_at`."
    )
    tags: list[str]


class ProgressAnswer(BaseModel):
    fraction: float = Field(ge=0, le=1)
    message: str | None
    reported_at: datetime


class JobAnswer(JobSummary):
    lease_owner: str | None
    lease_expires_at: datetime | None
    last_error: str | None
    progress: ProgressAnswer | None = Field(
        description="What the handler last reported; null without a report by the current attempt,"
        " and once the job has succeeded."
    )
    scheduled_for: datetime | None = Field(
        description="The planned time, if a schedule enqueued the job."
    )
    payload: Any = Field(description="As it is stored.")
    result: Any = Field(description="The handler's result; null until the job has succeeded.")
    unique_key: str | None = Field(description="It was enqueued with `unique`.")


class JobPage(BaseModel):
    jobs: list[JobSummary]
    next: str | None = Field(
        description="`before` of the next page; null at the end. A filtered page may have fewer jobs"
        " than asked for, even none, and still have a next."
    )


class ExportPage(BaseModel):
    jobs: list[JobAnswer]
    next: str | None = Field(
        description="`before` of the next page; null at the end. A page may be short, even empty, and"
        " still have a next."
    )


class StateAnswer(BaseModel):
    job_id: str = Field(json_schema_extra={"format": "uuid"})
    state: JobState = Field(description="The job's state after the request.")


class DeletedAnswer(BaseModel):
    job_id: str = Field(json_schema_extra={"format": "uuid"})
    state: JobState = Field(description="The state in which the job was.")


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
    waiting: Count = Field(description="Due jobs that wait because a limit is reached.")
    scheduled: Count
    running: Count
    failed: Count
    succeeded: Count


class QueuesAnswer(BaseModel):
    queues: list[QueueSummary]
