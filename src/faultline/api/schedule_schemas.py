"""The JSON bodies of requests and responses about schedules, as pydantic models."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from faultline.api.schemas import Expiry, Payload, QueueName, Tags, TaskName
from faultline.errors import InvalidInput
from faultline.schedules import (
    DEFAULT_MISSED_LIMIT,
    LONGEST_EVERY_SECONDS,
    LONGEST_JITTER_SECONDS,
    MOST_MISSED,
    Missed,
    check_schedule_name,
)

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$"}
ScheduleName = Annotated[str, PlainValidator(check_schedule_name), WithJsonSchema(_NAME)]


def _check_anchor(text: Any) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInput(
            f"anchor {str(text)[:80]!r} is not an ISO time with a zone",
            hint="2030-01-31T09:00:00+01:00",
        )
    return time


Anchor = Annotated[
    datetime | None,
    PlainValidator(_check_anchor),
    WithJsonSchema({"type": ["string", "null"], "format": "date-time"}),
]


class ScheduleRequest(BaseModel):
    """A schedule to add: with `cron` or `every_seconds`, one of the two."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "nightly-report",
                    "cron": "0 6 * * 1-5",
                    "time_zone": "Europe/Berlin",
                    "task": "shop.report",
                    "payload": {"days": 1},
                }
            ]
        },
    )

    name: ScheduleName
    cron: str | None = Field(
        None, description="Minute, hour, day of the month, month, day of the week."
    )
    every_seconds: int | None = Field(
        None, ge=1, le=LONGEST_EVERY_SECONDS, description="Fire at multiples from `anchor`."
    )
    anchor: Anchor = Field(None, description="Default: the beginning of 1970. In whole seconds.")
    time_zone: str = Field("UTC", description="A name of the IANA database, for `cron`.")
    task: TaskName = Field(description="The name of the task.")
    payload: Payload = Field(default_factory=dict)
    queue: QueueName | None = Field(None, description="Default: the task's queue, else `default`.")
    priority: int | None = Field(None, ge=0, le=9, description="0 (first) to 9 (last).")
    max_attempts: int | None = Field(None, ge=1, le=1000)
    expires_in: Expiry = Field(
        None, description="Each job fails if it has not started so many seconds after its firing."
    )
    tags: Tags = Field(None, description="Of each job.")
    missed: Missed = Field(
        Missed.ONCE,
        description="Which times fire if several are due: the newest if it is at most a minute late"
        " (skip), the newest (once), or all up to `missed_limit`.",
    )
    missed_limit: int = Field(DEFAULT_MISSED_LIMIT, ge=1, le=MOST_MISSED)
    jitter_seconds: float = Field(
        0, ge=0, le=LONGEST_JITTER_SECONDS, description="Each job is due up to this much later."
    )
    replace: bool = Field(False, description="Change the schedule if it exists.")


class ScheduleSummary(BaseModel):
    name: str
    state: str = Field(examples=["active", "paused", "failing", "overdue", "undeclared"])
    cron: str | None
    every_seconds: int | None
    anchor: datetime | None
    time_zone: str
    task: str
    queue: str
    priority: int
    max_attempts: int
    payload: Any
    missed: str
    missed_limit: int
    jitter_seconds: float
    declared_by: str = Field(examples=["code", "operator"])
    is_undeclared: bool = Field(description="Code declared it, and that of no live worker does.")
    revision: int
    paused_at: datetime | None
    paused_reason: str | None
    next_fire_at: datetime | None = Field(description="Null until a reconciler has computed it.")
    last_planned_at: datetime | None
    last_fired_at: datetime | None
    last_job_id: str | None = Field(json_schema_extra={"format": "uuid"})
    last_error: str | None = Field(description="Why the next time cannot be computed.")


class SchedulesAnswer(BaseModel):
    schedules: list[ScheduleSummary]


class FiringAnswer(BaseModel):
    planned_at: datetime
    outcome: str = Field(examples=["fired", "skipped", "manual"])
    job_id: str | None = Field(json_schema_extra={"format": "uuid"})
    skipped: int = Field(description="Of a skipped time: how many did not fire, up to this one.")
    fired_at: datetime


class ScheduleAnswer(ScheduleSummary):
    upcoming: list[datetime] = Field(description="The next times, in the schedule's zone.")
    notes: list[str] = Field(description="Why it does not fire, or not as expected.")
    firings: list[FiringAnswer] = Field(description="The newest, latest planned time first.")


class AddedScheduleAnswer(BaseModel):
    schedule: str
    outcome: str = Field(examples=["added", "changed", "unchanged"])


class SchedulePauseAnswer(BaseModel):
    schedule: str
    paused: bool
    changed: bool = Field(description="False if it was so before.")


class ScheduleRunAnswer(BaseModel):
    schedule: str
    job_id: str = Field(json_schema_extra={"format": "uuid"})


class RemovedScheduleAnswer(BaseModel):
    schedule: str
    removed: bool
