"""Every accepted annotation brings every value back, however it is composed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, Union
from uuid import UUID

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from faultline.errors import InvalidInput
from faultline.payload import decode_payload, encode_payload
from tests.unit.argument_codec import codec_of

T = TypeVar("T")
# An annotation and its values.
Typed = tuple[Any, st.SearchStrategy[Any]]


class Color(Enum):
    RED = "red"
    NOTHING = None


class Odd(Enum):
    TRUE = True
    DAY = "2026-01-31"
    HALF = 0.5


class Size(IntEnum):
    SMALL = 1


class Point(NamedTuple):
    x: float
    at: date


class Filter(TypedDict, total=False):
    since: date


class Tagged(TypedDict):
    kind: Literal["tagged"]


@dataclass(frozen=True)
class Box(Generic[T]):
    item: T


@dataclass(frozen=True)
class Twin:
    item: date


@dataclass(frozen=True)
class Crate(Generic[T]):
    kind: Literal["crate"]
    item: T
    note: str = ""


def _without_fold(value: Any) -> Any:
    return value.replace(fold=0)


ID = "0190a5f2-7c3e-7f00-8000-000000000001"
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
days = st.dates()
LEAVES: list[Typed] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, st.integers(-(2**63), 2**63 - 1)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, texts | days.map(str) | st.uuids().map(str)),
    (Any, st.none() | texts | st.lists(st.integers(0, 9), max_size=2)),
    (datetime, st.datetimes(timezones=st.just(UTC) | st.none()).map(_without_fold)),
    (date, days),
    (time, st.times().map(_without_fold)),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False)),
    (bytes, st.binary(max_size=5)),
    (Color, st.sampled_from(Color)),
    (Odd, st.sampled_from(Odd)),
    (Size, st.just(Size.SMALL)),
    (Literal["a", 1, True], st.sampled_from(["a", 1, True])),
    (Point, st.builds(Point, st.floats(0, 1), days)),
    (Filter, st.fixed_dictionaries({}, optional={"since": days})),
    (Tagged, st.just({"kind": "tagged"})),
]


def _composed(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def union(members: list[Typed]) -> Typed:
        annotation = Union[tuple(annotation for annotation, _ in members)]  # noqa: UP007
        return annotation, st.one_of([values for _, values in members])

    unions = st.lists(inner, min_size=2, max_size=4).map(union)
    return st.one_of(
        *[unions] * 4,  # the annotations that can be wrong
        inner.map(lambda each: (list[each[0]], st.lists(each[1], max_size=2))),  # type: ignore[name-defined]
        inner.map(lambda each: (tuple[each[0], ...], st.lists(each[1], max_size=2).map(tuple))),  # type: ignore[name-defined]
        inner.map(lambda each: (dict[str, each[0]], st.dictionaries(texts, each[1], max_size=2))),  # type: ignore[name-defined]
        inner.map(lambda each: (Box[each[0]], st.builds(Box, each[1]))),  # type: ignore[name-defined]
        inner.map(lambda each: (Crate[each[0]], st.builds(Crate, st.just("crate"), each[1]))),  # type: ignore[name-defined]
        st.tuples(inner, inner).map(
            lambda pair: (tuple[pair[0][0], pair[1][0]], st.tuples(pair[0][1], pair[1][1]))  # type: ignore[name-defined]
        ),
    )


@given(st.recursive(st.sampled_from(LEAVES), _composed, max_leaves=6), st.data())
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_an_accepted_annotation_brings_its_values_back(typed: Typed, data: st.DataObject) -> None:
    annotation, values = typed
    try:
        codec = codec_of(annotation)
    except InvalidInput as refusal:
        if "cannot be told apart in JSON" not in refusal.message:
            raise
        event("refused")
        assume(False)
    value = data.draw(values)
    if codec is None:
        event("plain")
        return
    event("rich")
    back = codec.decode(decode_payload(encode_payload(codec.encode({"x": value}))))["x"]
    assert repr(back) == repr(value)  # unlike ==, it tells 1 from True and 1.0


SAMPLES: list[tuple[Any, list[Any]]] = [
    (None, [None]),
    (bool, [True, False]),
    (int, [0, 1, -1]),
    (float, [0.0, 1.0, 0.5]),
    (str, ["", "a", "red", "P1D", "09:00", "2026-01-31", "2026-01-31T09:00", "1.5", "AAAA", ID]),
    (list[int], [[], [1]]),
    (dict[str, Any], [{}, {"since": "2026-01-31"}, {"kind": "tagged"}, {"item": "2026-01-31"}]),
    (datetime, [datetime(2026, 1, 31, 9, tzinfo=UTC)]),
    (date, [date(2026, 1, 31)]),
    (time, [time(9)]),
    (timedelta, [timedelta(days=1)]),
    (UUID, [UUID(ID)]),
    (Decimal, [Decimal("1.5"), Decimal(1)]),
    (bytes, [b"", b"\0\0\0"]),
    (Color, list(Color)),
    (Odd, list(Odd)),
    (Size, list(Size)),
    (Literal["a", 1, True], ["a", 1, True]),
    (tuple[int, ...], [(), (1,)]),
    (set[int], [set(), {1}]),
    (Point, [Point(0.5, date(2026, 1, 31))]),
    (Filter, [{}, {"since": date(2026, 1, 31)}]),
    (Tagged, [{"kind": "tagged"}]),
    (Box[date], [Box(date(2026, 1, 31))]),
    (Twin, [Twin(date(2026, 1, 31))]),
    (Crate[date], [Crate("crate", date(2026, 1, 31))]),
]


def test_a_union_of_two_types_is_refused_or_brings_both_back() -> None:
    accepted = 0
    for (one, ones), (other, others) in itertools.permutations(SAMPLES, 2):
        try:
            codec = codec_of(Union[one, other])  # noqa: UP007
        except InvalidInput:
            continue
        for value in [*ones, *others] if codec is not None else []:
            back = codec.decode(decode_payload(encode_payload(codec.encode({"x": value}))))["x"]
            assert repr(back) == repr(value), (one, other)
            accepted += 1
    assert accepted > 1000
