"""Dataclasses, NamedTuples, TypedDicts and unions of them as arguments."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.argument_codec import (
    codec_of,
    definition_refusal_of,
    json_refusal_of,
    refusal_of,
    round_trip,
    text_of,
    value_of,
)

T = TypeVar("T")
SOME_ID = UUID("0190a5f2-7c3e-7f00-8000-000000000001")


@dataclass(frozen=True)
class Line:
    price: Decimal
    count: int = 1


@dataclass
class Invoice:
    id: UUID
    lines: list[Line]
    due: date | None = None
    tags: frozenset[str] = frozenset()
    replaces: Invoice | None = None
    total: Decimal = field(init=False, default=Decimal(0))

    def __post_init__(self) -> None:
        self.total = sum((line.price * line.count for line in self.lines), Decimal(0))


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("it must be positive")


@dataclass(frozen=True)
class Discounted(Line):
    percent: int = 10


class Point(NamedTuple):
    at: date
    value: float = 0.0


class Options(TypedDict, total=False):
    since: Required[date]
    limit: int


class MoreOptions(Options):
    until: NotRequired[date]
    order: str


class PlainOptions(TypedDict):
    limit: int
    more: NotRequired[PlainOptions]


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: T | None = None


@dataclass
class Prices(Page[Decimal]):
    pass


@dataclass
class NotedPrices(Prices, Generic[T]):  # T is another one here
    note: T | None = None


@dataclass
class WithInitVar:
    number: int
    secret: InitVar[str]


@dataclass
class WithSocket:
    lines: list[Line]
    connection: Exception


@dataclass
class Card:
    kind: Literal["card"]
    number: str


@dataclass
class Transfer:
    kind: Literal["transfer"]
    number: str


@dataclass
class Cash:
    amount: Decimal


@dataclass
class Coins:
    amount: Decimal
    note: str = ""


class Color(Enum):
    RED = "red"


class DayColor(Enum):
    FIRST = "2026-01-31"


class Size(IntEnum):
    SMALL = 1


def test_a_dataclass_and_what_it_contains_comes_back_equal() -> None:
    inner = Invoice(SOME_ID, [])
    invoice = Invoice(SOME_ID, [Line(Decimal("1.10"), 2)], date.min, frozenset("ba"), inner)
    assert text_of(Invoice, invoice) == (
        f'{{"x":{{"id":"{SOME_ID}","lines":[{{"price":"1.10","count":2}}],"due":"0001-01-01",'
        f'"tags":["a","b"],"replaces":{{"id":"{SOME_ID}","lines":[],"due":null,"tags":[],'
        '"replaces":null}}}'
    )
    back = round_trip(Invoice, invoice)
    assert back == invoice
    assert back.total == Decimal("2.20")


_prices = st.decimals(allow_nan=False, allow_infinity=False)


@given(st.builds(Invoice, lines=st.lists(st.builds(Line, _prices))))
def test_every_dataclass_comes_back_equal(invoice: Invoice) -> None:
    assert round_trip(Invoice, invoice) == invoice


def test_a_missing_field_gets_its_default() -> None:
    assert value_of(Line, '{"x":{"price":"1"}}') == Line(Decimal(1))


def test_a_refusal_has_the_path_to_the_field() -> None:
    wrong: Any = "1.10"
    lines = [Line(Decimal(1)), Line(Decimal(2)), Line(wrong)]
    invoice = Invoice(SOME_ID, [])
    invoice.lines = lines
    assert refusal_of(Invoice, invoice) == "x.lines[2].price: expected Decimal, got str"
    stored = {"id": str(SOME_ID), "lines": [{"price": "1"}, {"price": 1.5}]}
    assert json_refusal_of(Invoice, stored) == (
        'x.lines[1].price: expected Decimal as a string such as "19.99", got a number'
    )
    assert json_refusal_of(Invoice, {"id": str(SOME_ID)}) == "x.lines: is missing"
    assert json_refusal_of(Line, {"price": "1", "a b": 1}) == "x['a b']: is no field of Line"
    assert json_refusal_of(Line, []) == "x: expected Line, got an array"


def test_an_instance_of_a_subclass_is_refused_because_its_fields_would_be_lost() -> None:
    assert refusal_of(Line, Discounted(Decimal(1))) == "x: expected Line, got Discounted"


def test_another_class_of_the_same_name_is_refused_as_such() -> None:
    other = type("Line", (), {})()
    assert refusal_of(Line, other) == (
        "x: expected Line, got an instance of another class named Line"
    )


def test_an_error_of_the_constructor_is_a_refusal() -> None:
    assert json_refusal_of(list[Positive], [{"number": 1}, {"number": 0}]) == (
        "x[1]: ValueError: it must be positive"
    )


def test_a_named_tuple_is_an_object() -> None:
    assert text_of(Point, Point(date.min, 1.5)) == '{"x":{"at":"0001-01-01","value":1.5}}'
    back = value_of(Point, '{"x":{"at":"0001-01-01"}}')
    assert back == Point(date.min)
    assert type(back) is Point
    assert refusal_of(Point, (date.min, 1.5)) == "x: expected Point, got tuple"


def test_a_typed_dict_knows_which_fields_are_required() -> None:
    assert round_trip(Options, {"since": date.min}) == {"since": date.min}
    full = {"since": date.min, "limit": 1, "order": "up"}
    assert round_trip(MoreOptions, full) == full
    assert refusal_of(Options, {"limit": 1}) == "x.since: is missing"
    assert refusal_of(MoreOptions, {"since": date.min}) == "x.order: is missing"
    assert refusal_of(Options, {"since": date.min, "limit": "1"}) == (
        "x.limit: expected int, got str"
    )
    assert refusal_of(Options, {"since": date.min, "z": 1}) == "x.z: is no field of Options"


def test_a_typed_dict_of_plain_fields_is_plain() -> None:
    assert codec_of(PlainOptions) is None


def test_a_generic_dataclass_has_the_fields_of_its_arguments() -> None:
    page = Page([Line(Decimal(1))], Line(Decimal(2)))
    assert round_trip(Page[Line], page) == page
    assert round_trip(list[Page[date]], [Page([date.min])]) == [Page([date.min])]
    assert refusal_of(Page[date], Page([1])) == "x.items[0]: expected date, got int"


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (WithInitVar, "WithInitVar.secret is an InitVar, whose value is not kept"),
        (WithSocket, "WithSocket.connection: a builtins.Exception cannot be stored as JSON"),
        (Page, "Page.items: T is a type variable (give the type that it has here)"),
        (str | datetime, "str and datetime cannot be told apart in JSON: either may be a string"),
        (UUID | str, "UUID and str cannot be told apart"),
        (bytes | UUID, "bytes and UUID cannot be told apart"),
        (Color | str | None, "Color and str cannot be told apart"),
        (DayColor | date, "DayColor and date cannot be told apart"),
        (Size | int, "Size and int cannot be told apart in JSON: either may be a number"),
        (list[int] | set[int], "list and set cannot be told apart in JSON: either may be an array"),
        (Any | date, "Any and date cannot be told apart"),
        (dict[str, int] | Line, "dict and Line cannot be told apart"),
        (
            Cash | Coins,
            "Cash and Coins cannot be told apart in JSON: either may be an object"
            ' (give both a field such as `kind: Literal["…"]` with different values)',
        ),
        (dict[str, list[str | Decimal]], "str and Decimal cannot be told apart"),
    ],
    ids=str,
)
def test_what_could_not_come_back_equal_is_refused_at_the_definition(
    annotation: Any, message: str
) -> None:
    assert definition_refusal_of(annotation).startswith(message)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (date | datetime, date.min),
        (date | datetime, datetime(2026, 1, 31, 9, tzinfo=UTC)),
        (datetime | UUID | Decimal | None, Decimal(1)),
        (datetime | UUID | Decimal | None, SOME_ID),
        (datetime | UUID | Decimal | None, None),
        (Decimal | int, 1),
        (Decimal | float | int, 1),
        (Decimal | float | int, 1.5),
        (Color | date, Color.RED),
        (Color | date | Size | bool, Size.SMALL),
        (Color | date | Size | bool, True),
        (Card | Transfer | None, Card("card", "1")),
        (Card | Transfer | None, Transfer("transfer", "1")),
        (Line | Cash | Point, Cash(Decimal(1))),  # each requires a field that the others lack
        (Line | Cash | Point, Point(date.min)),
        (Line | list[Line], [Line(Decimal(1))]),
        (dict[str, Card | Transfer], {"a": Transfer("transfer", "1")}),
        (Literal["auto"] | date, "auto"),
    ],
)
def test_the_members_of_a_union_come_back_as_themselves(annotation: Any, value: Any) -> None:
    back = round_trip(annotation, value)
    assert back == value
    assert type(back) is type(value)


def test_a_refusal_by_a_union_is_that_of_the_member_that_was_meant() -> None:
    wrong: Any = 1
    pay = Card | Transfer
    assert refusal_of(pay, Card("card", wrong)) == "x.number: expected str, got int"
    assert refusal_of(pay, 1) == "x: expected Card | Transfer, got int"
    assert json_refusal_of(pay, {"kind": "card", "number": 1}) == (
        "x.number: expected str, got a number"
    )
    assert json_refusal_of(pay, {"number": "1"}) == (
        "x: expected Card | Transfer, got an object that fits none (the field kind says which)"
    )
    assert json_refusal_of(pay, {"kind": [], "number": "1"}).startswith("x: expected Card | Trans")
    assert json_refusal_of(pay | None, "a") == "x: expected Card | Transfer | None, got a string"
    assert json_refusal_of(date | UUID, "a") == (
        "x: expected date | UUID, got a string that fits none"
    )
    assert json_refusal_of(Line | None, {"price": 1}) == (
        'x.price: expected Decimal as a string such as "19.99", got a number'
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Prices, Prices([Decimal("1.10")], next=Decimal(2))),
        (NotedPrices[date], NotedPrices([Decimal("1.10")], note=date(2026, 1, 31))),
    ],
    ids=str,
)
def test_a_class_may_give_the_types_of_its_generic_base(kind: Any, value: Any) -> None:
    assert round_trip(kind, value) == value
    wrong = type(value)(["no price"])
    assert refusal_of(kind, wrong) == "x.items[0]: expected Decimal, got str"
