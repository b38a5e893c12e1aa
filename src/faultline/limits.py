"""Limits that tasks and queues declare: of concurrency, and of rate."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import orjson

from faultline.enqueue_options import Seconds, seconds_of
from faultline.errors import InvalidInput
from faultline.wording import with_article

LARGEST_LIMIT = 1_000_000
LONGEST_RATE_SECONDS = 366 * 86_400
SHORTEST_RATE_SECONDS = 0.001
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}\Z")


@dataclass(frozen=True, slots=True)
class Limit:
    """How many jobs may run at once, or with `key`, of each value of an argument.

    Tasks whose limits have the same `name` share them. A limit without a name belongs to its task.
    """

    max_running: int
    key: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check_count("max_running", self.max_running, least=0)
        _check_name(self.key, self.name)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many jobs may start in a period, of them at most `burst` at once."""

    jobs: int
    per: Seconds
    burst: int = 1
    key: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check_count("jobs", self.jobs, least=1)
        _check_count("burst", self.burst, least=1)
        seconds_of("per", self.per, LONGEST_RATE_SECONDS, shortest=SHORTEST_RATE_SECONDS)
        _check_name(self.key, self.name)

    @property
    def seconds(self) -> float:
        return self.per.total_seconds() if isinstance(self.per, timedelta) else float(self.per)


class LimitArgument(NamedTuple):
    """The argument of a task whose value is the key of its limit."""

    limit_name: str
    task: str
    argument: str
    fallback: str | None  # the key of a job that does not give the argument; None: no limit


Declared = dict[str, dict[str, int | float]]


class LimitValues(NamedTuple):
    """The numbers of one limit, as PostgreSQL has them; None where it limits nothing."""

    max_running: int | None
    rate_jobs: int | None = None
    rate_seconds: float | None = None
    burst: int | None = None

    def __str__(self) -> str:
        """For people: `at most 3 at once, 10 in 1 s with a burst of 2`."""
        parts = [] if self.max_running is None else [f"at most {self.max_running:,} at once"]
        if self.max_running == 0:
            parts = ["none starts"]
        if self.rate_jobs is not None and self.rate_seconds is not None:
            burst = "" if self.burst in (None, 1) else f" with a burst of {self.burst:,}"
            parts.append(f"{self.rate_jobs:,} in {self.rate_seconds:g} s{burst}")
        return ", ".join(parts)


def operator_values(name: str, concurrency: int | None, rate: Rate | None) -> LimitValues:
    """The values of an operator's limit; InvalidInput if they limit nothing."""
    check_limit_name(name)
    if concurrency is None and rate is None:
        raise InvalidInput(f"the limit {name} needs concurrency, rate or both")
    max_running = None if concurrency is None else Limit(concurrency).max_running
    if rate is None:
        return LimitValues(max_running)
    if not isinstance(rate, Rate) or rate.key is not None or rate.name is not None:
        raise InvalidInput(
            "the rate of an operator's limit is a Rate without key and name",
            hint="rate=faultline.Rate(10, per=1)",
        )
    return LimitValues(max_running, rate.jobs, rate.seconds, rate.burst)


def check_limit_name(name: Any) -> str:
    """`queue:billing`, `task:shop.charge` or `key:customer`; else InvalidInput."""
    kind, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind not in ("queue", "task", "key") or not _NAME.match(rest):
        raise InvalidInput(
            f"{str(name)[:80]!r} is not the name of a limit",
            hint="queue:QUEUE, task:TASK or key:NAME",
        )
    return str(name)


def declared_limits(
    owner: str, concurrency: Limit | int | None, rate: Rate | None, *, task: str | None = None
) -> Declared:
    """The limits of a queue or a task, as `faultline.declare_limits` takes them."""
    found: Declared = {}
    if (limit := as_limit(concurrency)) is not None:
        found[_limit_name(owner, limit, task)] = {"max_running": limit.max_running}
    if rate is not None:
        if not isinstance(rate, Rate):
            raise InvalidInput(
                f"rate must be a Rate, not {with_article(type(rate).__name__)}",
                hint="rate=faultline.Rate(10, per=1)",
            )
        values = found.setdefault(_limit_name(owner, rate, task), {})
        values.update(rate_jobs=rate.jobs, rate_seconds=rate.seconds, burst=rate.burst)
    return found


def merge_limits(limits: Iterable[Declared]) -> Declared:
    """The limits of several owners; InvalidInput if two disagree about a name."""
    merged: Declared = {}
    for declared in limits:
        for name, values in declared.items():
            if merged.setdefault(name, values) != values:
                raise InvalidInput(
                    f"two tasks declare different values for the limit {name}",
                    hint="tasks that share a limit by its name declare the same values",
                )
    return merged


def as_limit(concurrency: Limit | int | None) -> Limit | None:
    """`concurrency=3` means `Limit(3)`."""
    if concurrency is None or isinstance(concurrency, Limit):
        return concurrency
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise InvalidInput(
            f"concurrency must be a number or a Limit, not {with_article(type(concurrency).__name__)}",
            hint='concurrency=3 or concurrency=faultline.Limit(3, key="customer_id")',
        )
    return Limit(concurrency)


def keyed_arguments(
    task: str, limits: Iterable[Limit | Rate | None], signature: inspect.Signature
) -> tuple[LimitArgument, ...]:
    """The arguments that are keys of limits; InvalidInput if the task lacks one."""
    found: dict[str, LimitArgument] = {}
    parameters = dict(list(signature.parameters.items())[1:])  # the first is the job
    for limit in limits:
        if limit is None or limit.key is None:
            continue
        parameter = parameters.get(limit.key)
        if parameter is None or parameter.kind is parameter.VAR_KEYWORD:
            raise InvalidInput(
                f"{task} has no argument {limit.key!r} for the key of its limit",
                hint=f"its arguments: {', '.join(parameters) or 'none'}",
            )
        default = None if parameter.default is parameter.empty else parameter.default
        name = _limit_name(f"task:{task}", limit, task)
        found[name] = LimitArgument(name, task, limit.key, _fallback(default))
    return tuple(found.values())


def _fallback(default: Any) -> str | None:
    """The default value of an argument as PostgreSQL's ->> shows it in a payload."""
    if default is None or isinstance(default, str):
        return default
    return orjson.dumps(default, default=str).decode()


def _limit_name(owner: str, limit: Limit | Rate, task: str | None) -> str:
    """`owner` is 'queue:…' or 'task:…'; a keyed or shared limit has a name of its own."""
    if limit.key is None and limit.name is None:
        return owner
    if task is None:
        raise InvalidInput(
            "the limit of a queue has no key and no name", hint="give them to a task's limit"
        )
    return f"key:{limit.name or f'{task}.{limit.key}'}"


def _check_count(name: str, count: int, *, least: int) -> None:
    is_number = isinstance(count, int) and not isinstance(count, bool)
    if not is_number or not least <= count <= LARGEST_LIMIT:
        raise InvalidInput(f"{name} must be {least} to {LARGEST_LIMIT:,}, not {count!r}")


def _check_name(key: str | None, name: str | None) -> None:
    if name is None:
        return
    if key is None:
        raise InvalidInput(
            "a limit with a name needs a key", hint=f'Limit(…, key="argument", name={name!r})'
        )
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidInput(
            f"{str(name)[:80]!r} is not the name of a limit",
            hint="use 1 to 200 letters, digits, _ . : -",
        )
