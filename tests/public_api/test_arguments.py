"""Rich arguments reach the handler as they were enqueued, through PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from uuid import UUID, uuid4

import msgspec
import psycopg
import pydantic
import pytest

from faultline import (
    Enqueued,
    Faultline,
    IdempotencyConflict,
    InvalidInput,
    Job,
    JobState,
    RetryPolicy,
)
from faultline.testing import run_until_idle
from tests.running import ended, value, working

Connection = psycopg.Connection[Any]


class Color(Enum):
    RED = "red"


class Size(IntEnum):
    LARGE = 2


class Mode(StrEnum):
    FAST = "fast"


@dataclass
class Line:
    price: Decimal
    count: int = 1


@dataclass
class Invoice:
    id: UUID
    due: date
    lines: list[Line] = field(default_factory=list)


class Point(NamedTuple):
    at: datetime
    value: float


class Filter(TypedDict, total=False):
    since: date


class Model(pydantic.BaseModel):
    at: datetime
    price: Decimal
    tags: set[str]


class Struct(msgspec.Struct):
    at: datetime
    raw: bytes


NOW = datetime(2026, 1, 31, 9, 30, 15, 123456, tzinfo=UTC)
SOME_ID = UUID("0190a5f2-7c3e-7f00-8000-000000000001")
INVOICE = Invoice(SOME_ID, date(2026, 1, 31), [Line(Decimal("1.10")), Line(Decimal("1E+3"), 2)])
VALUES: list[tuple[Any, Any]] = [
    (datetime, NOW),
    (datetime, NOW.replace(tzinfo=None)),
    (date, date(2026, 1, 31)),
    (time, time(9, 30, 15, 123456)),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (UUID, SOME_ID),
    (Decimal, Decimal("123456789012345678901234567890.10")),
    (Color, Color.RED),
    (Size, Size.LARGE),
    (Mode, Mode.FAST),
    (bytes, bytes(range(256))),
    (Path, Path("/a/b")),
    (set[UUID], {SOME_ID}),
    (tuple[int, ...], (1, 2)),
    (dict[str, list[Decimal | None]], {"a": [Decimal("1.0"), None]}),
    (date | datetime, NOW),
    (Invoice, INVOICE),
    (Invoice | None, None),
    (Point, Point(NOW, 1e22)),
    (Filter, {"since": date(2026, 1, 31)}),
    (Model, Model(at=NOW, price=Decimal("1.10"), tags={"b", "a"})),
    (Struct, Struct(NOW, b"\x00")),
]


def collecting(app: Faultline, annotation: Any, **options: Any) -> tuple[Any, list[Any]]:
    """A task whose argument `x` has this annotation, and what its handler was given."""
    given: list[Any] = []

    def handler(job: Job, x: Any) -> None:
        given.append(x)

    handler.__annotations__["x"] = annotation
    return app.task(name="collect", **options)(handler), given


@pytest.mark.parametrize(("annotation", "sent"), VALUES)
def test_an_argument_of_each_kind_reaches_the_handler(
    app: Faultline, annotation: Any, sent: Any
) -> None:
    task, given = collecting(app, annotation)
    task.enqueue(x=sent)
    task.enqueue(sent)
    run_until_idle(app)
    assert given == [sent, sent]
    assert type(given[0]) is type(sent)


def test_a_worker_and_async_producers_convert_arguments_too(app: Faultline) -> None:
    @app.task()
    async def total(job: Job, invoice: Invoice, at: datetime) -> str:
        assert isinstance(invoice, Invoice)
        return str(sum(line.price * line.count for line in invoice.lines) + at.year)

    async def enqueue_async() -> Enqueued:
        try:
            return await total.enqueue_async(INVOICE, NOW)
        finally:
            await app.aclose()

    jobs = [
        total.enqueue(INVOICE, at=NOW),
        *total.enqueue_many([{"invoice": INVOICE, "at": NOW}]),
        *app.enqueue_many([total.options(priority=1).job(INVOICE, at=NOW)]),
        asyncio.run(enqueue_async()),
    ]
    with working(app):
        assert [ended(app, job.job_id).result for job in jobs] == ["4027.10"] * 4


def test_a_class_that_is_defined_with_its_task_reaches_the_inline_worker(app: Faultline) -> None:
    @dataclass
    class Order:
        due: date

    given: list[Order] = []

    @app.task()
    def place(job: Job, order: Order) -> None:
        given.append(order)

    place.enqueue(order=Order(date(2026, 1, 31)))
    run_until_idle(app)
    assert given == [Order(date(2026, 1, 31))]


def test_a_value_that_does_not_fit_is_refused_and_nothing_is_stored(
    app: Faultline, conn: Connection
) -> None:
    wrong: Any = "1.10"

    @app.task(name="shop.charge")
    def charge(job: Job, invoice: Invoice, attempt: int = 0) -> None: ...

    refused: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: charge.enqueue(Invoice(SOME_ID, NOW.date(), [Line(wrong)])),
            "cannot enqueue shop.charge: invoice.lines[0].price: expected Decimal, got str",
        ),
        (
            lambda: charge.enqueue(INVOICE, attempt=True),
            "cannot enqueue shop.charge: attempt: expected int, got bool",
        ),
        (
            lambda: charge.enqueue_many([{"invoice": INVOICE}, {"invoice": None}]),
            "cannot enqueue shop.charge: invoice: expected Invoice, got None",
        ),
    ]
    for enqueue, message in refused:
        with pytest.raises(InvalidInput) as raised:
            enqueue()
        assert raised.value.message == message
    assert value(conn, "SELECT count(*) FROM faultline.jobs") == 0


def test_arguments_that_a_sql_producer_stored_are_checked_when_the_job_runs(
    app: Faultline, conn: Connection
) -> None:
    _, given = collecting(app, Invoice, retry=RetryPolicy(base_seconds=0.01, cap_seconds=0.01))
    call = """
        SELECT job_id FROM faultline.enqueue('collect', jsonb_build_object('x', jsonb_build_object(
            'id', %s::uuid, 'due', date '2026-01-31',
            'lines', jsonb_build_array(jsonb_build_object('price', %s::jsonb)))),
            max_attempts => 2)"""
    good_id, bad_id = (value(conn, call, SOME_ID, price) for price in ('"1.10"', "1.10"))
    with working(app):
        assert ended(app, good_id).state is JobState.SUCCEEDED
        record = ended(app, bad_id)
    assert given == [Invoice(SOME_ID, date(2026, 1, 31), [Line(Decimal("1.10"))])]
    assert (record.state, record.failed_reason) == (JobState.FAILED, "attempts_spent")
    assert record.attempts == 2  # retried: a newer worker may accept it
    assert (
        "the payload does not fit collect: x.lines[0].price: expected Decimal as a string such as"
        ' "19.99", got a number'
    ) in str(record.last_error)


def test_equal_arguments_are_equal_for_an_idempotency_key(app: Faultline) -> None:
    task, _ = collecting(app, set[str])
    names = [str(uuid4()) for _ in range(50)]
    backwards = names[::-1]
    first = task.options(idempotency_key="k").enqueue(x=set(names))
    again = task.options(idempotency_key="k").enqueue(x=set(backwards))
    assert (again.job_id, again.existing) == (first.job_id, True)
    with pytest.raises(IdempotencyConflict):
        task.options(idempotency_key="k").enqueue(x=set(names[1:]))


def test_an_argument_that_cannot_be_stored_is_refused_when_the_task_is_defined(
    app: Faultline,
) -> None:
    with pytest.raises(InvalidInput) as raised:

        @app.task(name="shop.charge")
        def charge(job: Job, database: Connection) -> None: ...

    assert raised.value.message == (
        "shop.charge: its argument database cannot be stored: a psycopg.Connection cannot be stored"
        " as JSON"
    )
    assert "let the handler build it" in str(raised.value.hint)
    assert dict(app.tasks) == {}


def test_plain_arguments_are_not_checked(app: Faultline) -> None:
    """The type checker does it; checking every value would cost every job."""
    given: list[Any] = []

    @app.task()
    def collect(job: Job, number: int, names: list[str]) -> None:
        given.append((number, names))

    wrong: Any = "42"
    collect.enqueue(wrong, names=wrong)
    run_until_idle(app)
    assert given == [("42", "42")]


def test_the_example_of_the_documentation_runs(
    database_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    page = (Path(__file__).parents[2] / "docs" / "arguments.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    module = types.ModuleType("example_of_arguments")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(example, "docs/arguments.md", "exec"), vars(module))  # noqa: S102
    [attempted] = run_until_idle(module.app)
    module.app.close()
    assert attempted.result == "39.98"
    stored = json.loads(value(conn, "SELECT payload::text FROM faultline.jobs"))
    [documented] = re.findall(r"The stored payload is\n`(.*)`", page)
    assert stored == json.loads(documented)
