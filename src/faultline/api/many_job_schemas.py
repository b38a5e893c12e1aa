"""The JSON bodies of actions on many jobs, as pydantic models."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from faultline.api.schemas import JobConditions, Reason
from faultline.errors import InvalidInput
from faultline.job_edits import encode_changes
from faultline.job_selection import MAX_IDS
from faultline.model import JobState
from faultline.statements.many_jobs import STATES, ManyAction

MANY_JOBS = 500  # jobs that one request for many changes, unless it says otherwise
MOST_JOBS = 1000

_CHANGES = {
    "type": "object",
    "description": "The fields to set, with their new values, as in a payload. A value replaces the"
    " former one as a whole; other fields stay.",
    "minProperties": 1,
    "additionalProperties": True,
}


def _check_changes(changes: Any) -> dict[str, Any]:
    encode_changes(changes)
    return dict(changes)


def _check_ids(ids: Any) -> tuple[UUID, ...]:
    if not isinstance(ids, list) or len(ids) > MAX_IDS:
        raise InvalidInput(f"ids is a list of at most {MAX_IDS:,} job ids")
    try:
        return tuple(map(UUID, ids))
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput("ids has an id that is not a UUID") from None


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


class EditFilter(ActionFilter):
    state: Annotated[JobState | None, *_state_of(ManyAction.EDIT)] = Field(
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
    reason: Reason = None


class DeleteJobsRequest(ManyJobsRequest):
    filter: DeleteFilter


class EditJobsRequest(ManyJobsRequest):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"filter": {"task": "shop.charge"}, "changes": {"currency": "EUR"}}]
        },
    )

    filter: EditFilter
    changes: Annotated[dict[str, Any], PlainValidator(_check_changes), WithJsonSchema(_CHANGES)]


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
