"""The bodies of requests and answers about limits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from faultline.enqueue_options import seconds_of
from faultline.errors import InvalidInput
from faultline.limits import (
    LARGEST_LIMIT,
    LONGEST_RATE_SECONDS,
    SHORTEST_RATE_SECONDS,
    check_limit_name,
)
from faultline.payload import check_task_name

_NAME = {
    "type": "string",
    "minLength": 5,
    "maxLength": 206,
    "pattern": "^(queue|task|key):[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$",
}
LimitName = Annotated[str, PlainValidator(check_limit_name), WithJsonSchema(_NAME)]


def _check_argument(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 100:
        raise InvalidInput("argument is the name of an argument of the task: customer_id")
    return name


def _count(name: str, least: int) -> Any:
    """An integer from `least` to the largest limit; JSON may write 5 as 5.0."""

    def check(given: Any) -> int:
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise InvalidInput(f"{name} is a whole number")
        if not least <= given <= LARGEST_LIMIT:
            raise InvalidInput(f"{name} is {least} to {LARGEST_LIMIT:,}")
        return given

    schema = {"type": "integer", "minimum": least, "maximum": LARGEST_LIMIT}
    return PlainValidator(check), WithJsonSchema(schema)


def _check_seconds(given: Any) -> float:
    seconds = seconds_of("seconds", given, LONGEST_RATE_SECONDS, shortest=SHORTEST_RATE_SECONDS)
    if seconds is None:
        raise InvalidInput("seconds is a number")
    return seconds


class RateRequest(BaseModel):
    """How many jobs start in a period, evenly spread."""

    model_config = ConfigDict(extra="forbid")

    jobs: Annotated[int, *_count("jobs", 1)]
    seconds: Annotated[
        float,
        PlainValidator(_check_seconds),
        WithJsonSchema(
            {"type": "number", "minimum": SHORTEST_RATE_SECONDS, "maximum": LONGEST_RATE_SECONDS}
        ),
    ]
    burst: Annotated[int, *_count("burst", 1)] = Field(1, description="How many of them at once.")


class LimitKeyRequest(BaseModel):
    """A task under a limit `key:…`, and its argument whose value is the key."""

    model_config = ConfigDict(extra="forbid")

    task: Annotated[
        str,
        PlainValidator(check_task_name),
        WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200}),
    ]
    argument: Annotated[
        str,
        PlainValidator(_check_argument),
        WithJsonSchema({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": 100}),
    ]


class LimitRequest(BaseModel):
    """A whole limit, with at least one value: a missing or null one limits nothing."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"max_running": 3, "rate": {"jobs": 10, "seconds": 1, "burst": 3}},
                {"max_running": 0},
            ],
            "anyOf": [
                {"required": ["max_running"], "properties": {"max_running": {"type": "integer"}}},
                {"required": ["rate"], "properties": {"rate": {"type": "object"}}},
            ],
        },
    )

    max_running: Annotated[int, *_count("max_running", 0)] | None = Field(
        None, description="How many jobs run at once, in all workers together; 0 starts none."
    )
    rate: RateRequest | None = None
    key: LimitKeyRequest | None = Field(
        None, description="For a limit `key:…`: a task to put under it."
    )


# ── responses ────────────────────────────────────────────────────────────────────────────────────


class RateAnswer(BaseModel):
    jobs: int
    seconds: float
    burst: int


class LimitAnswer(BaseModel):
    name: str = Field(examples=["queue:billing", "task:shop.charge", "key:customer"])
    max_running: int | None = Field(description="For a limit `key:…`, of each key.")
    rate: RateAnswer | None
    changed_by: str = Field(examples=["code", "operator"])
    changed_at: datetime
    is_declared: bool = Field(
        description="Whether code declares it, so that a reset returns to that."
    )
    running: int = Field(description="Over all keys; counting stops at 10,000.")
    waiting: int = Field(description="Over all keys; counting stops at 10,000.")


class LimitsAnswer(BaseModel):
    limits: list[LimitAnswer]


class LimitKeyAnswer(BaseModel):
    limit_key: str = Field(examples=["key:customer=42"])
    running: int
    waiting: int
    waits_since: datetime | None = Field(description="Since when the first waiting job was due.")
    next_start_at: datetime | None = Field(description="Under a rate, if it is in the future.")


class LimitArgumentAnswer(BaseModel):
    task: str
    argument: str
    fallback: str | None = Field(description="The key of a job without the argument.")


class LimitDetailsAnswer(LimitAnswer):
    arguments: list[LimitArgumentAnswer] = Field(description="The tasks under a limit with keys.")
    keys: list[LimitKeyAnswer] = Field(description="The keys with the most waiting jobs.")


class ResetAnswer(BaseModel):
    name: str
    result: str = Field(
        examples=["declared", "removed"], description="`declared`: the values of the code apply."
    )
