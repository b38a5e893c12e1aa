"""The JSON bodies of requests and responses, as pydantic models.

The library's own functions check every job. The JSON schemas here describe those checks for clients.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from faultline.api.unique_request import UniqueRequest
from faultline.config import LONGEST_LEASE_SECONDS, LONGEST_RETRY_SECONDS, SHORTEST_LEASE_SECONDS
from faultline.enqueue_options import seconds_of
from faultline.errors import InvalidInput
from faultline.job_selection import MAX_IDS
from faultline.model import EnqueueOutcome, JobState
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
from faultline.statements.many_jobs import STATES, ManyAction
from faultline.wording import with_article

MANY_JOBS = 500  # jobs that one request for many changes, unless it says otherwise
MOST_JOBS = 1000

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


def _check_ids(ids: Any) -> tuple[UUID, ...]:
    if not isinstance(ids, list) or len(ids) > MAX_IDS:
        raise InvalidInput(f"ids is a list of at most {MAX_IDS:,} job ids")
    try:
        return tuple(map(UUID, ids))
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput("ids has an id that is not a UUID") from None


TaskName = Annotated[str, PlainValidator(check_task_name), WithJsonSchema(_TASK)]
QueueName = Annotated[str, PlainValidator(check_queue_name), WithJsonSchema(_QUEUE)]
Payload = Annotated[dict[str, Any], PlainValidator(_check_payload), WithJsonSchema(_PAYLOAD)]


# A condition may be missing, and is not null.
_Queue = Annotated[str | None, PlainValidator(check_queue_name), WithJsonSchema(_QUEUE)]
_Task = Annotated[str | None, PlainValidator(check_task_name), WithJsonSchema(_TASK)]
_Text = Annotated[str | None, PlainValidator(_check_text), WithJsonSchema({"type": "string"})]
_Moment = Annotated[
    datetime | None,
    PlainValidator(_check_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
_Ids = Annotated[
    tuple[UUID, ...] | None,
    PlainValidator(_check_ids),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "string", "format": "uuid"},
            "maxItems": MAX_IDS,
        }
    ),
]


def _check_state(state: Any, states: Collection[JobState]) -> JobState:
    if not isinstance(state, str) or state not in states:
        raise InvalidInput(
            f"the state is {' or '.join(states)} for this action, not {str(state)[:80]!r}"
        )
    return JobState(state)


def _state_of(action: ManyAction) -> Any:
    """The annotation of a state that an action changes."""
    states = STATES[action]
    return (
        PlainValidator(lambda state: _check_state(state, states)),
        WithJsonSchema({"type": "string", "enum": list(states)}),
    )


class JobConditions(BaseModel):
    """The values that jobs must have; a missing one allows any."""

    model_config = ConfigDict(extra="forbid")

    queue: _Queue = Field(None, description="Only jobs of this queue.")
    task: _Task = Field(None, description="Only jobs of this task.")
    failed_reason: _Text = Field(None, description="Only jobs that failed for this reason.")
    error: _Text = Field(None, description="Only jobs whose last error has this class.")
    created_after: _Moment = Field(None, description="Only jobs created at this time or later.")
    created_before: _Moment = Field(None, description="Only jobs created before this time.")
    finished_after: _Moment = Field(None, description="Only jobs finished at this time or later.")
    finished_before: _Moment = Field(None, description="Only jobs finished before this time.")


class ActionFilter(JobConditions):
    """The jobs of an action; at least one condition is needed."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    ids: _Ids = Field(None, description="Only these jobs.")


class RetryFilter(ActionFilter):
    state: Annotated[JobState | None, *_state_of(ManyAction.RETRY)] = Field(
        None, description="Only jobs in this state."
    )


class CancelFilter(ActionFilter):
    state: Annotated[JobState | None, *_state_of(ManyAction.CANCEL)] = Field(
        None, description="Only jobs in this state."
    )


class DeleteFilter(ActionFilter):
    state: Annotated[JobState | None, *_state_of(ManyAction.DELETE)] = Field(
        None, description="Only jobs in this state."
    )


class ManyJobsRequest(BaseModel):
    """An action on the jobs of a filter, a bounded number in each request."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"filter": {"queue": "billing", "error": "TimeoutError"}, "dry_run": True}]
        },
    )

    filter: ActionFilter
    dry_run: bool = Field(False, description="Count the jobs, and change nothing.")
    limit: int = Field(
        MANY_JOBS, ge=1, le=MOST_JOBS, description="How many jobs this request changes at most."
    )
    cursor: str | None = Field(
        None, description="`next` of the previous answer, with the same filter."
    )


class RetryJobsRequest(ManyJobsRequest):
    filter: RetryFilter


class CancelJobsRequest(ManyJobsRequest):
    filter: CancelFilter
    reason: Annotated[str | None, PlainValidator(_check_reason), WithJsonSchema(_REASON)] = None


class DeleteJobsRequest(ManyJobsRequest):
    filter: DeleteFilter


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


class StateAnswer(BaseModel):
    job_id: str = Field(json_schema_extra={"format": "uuid"})
    state: JobState = Field(description="The job's state after the request.")


class DeletedAnswer(BaseModel):
    job_id: str = Field(json_schema_extra={"format": "uuid"})
    state: JobState = Field(description="The state in which the job was.")


class ManyJobsAnswer(BaseModel):
    dry_run: bool
    matched: int = Field(description="How many jobs this page has.")
    done: int = Field(description="How many of them this request changed.")
    unchanged: int = Field(description="There was nothing to do in their state.")
    refused: int = Field(description="Their state does not allow it.")
    locked: int = Field(description="Another session held their row; send the request again.")
    gone: int = Field(description="They were deleted, or stopped matching, meanwhile.")
    refused_ids: list[str]
    locked_ids: list[str]
    sample: list[str] = Field(description="The ids of some jobs of this page.")
    next: str | None = Field(
        description="`cursor` of the request that continues; null at the end. A page may be short,"
        " even empty, and still have a next."
    )


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
