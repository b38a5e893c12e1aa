"""Each supported type goes through JSON and back; other values are refused."""

from __future__ import annotations

import enum
import math
import socket
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, NewType, Optional, Union
from uuid import UUID
from zoneinfo import ZoneInfo

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


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Mode(enum.StrEnum):
    FAST = enum.auto()


class Odd(enum.Enum):
    YES = True
    ONE_AND_A_HALF = 1.5
    HUNDRED = 1e2
    NONE = None


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Rgb(enum.Enum):
    RED = (255, 0, 0)


InvoiceId = NewType("InvoiceId", int)
CustomerId = NewType("CustomerId", UUID)
SOME_ID = UUID("0190a5f2-7c3e-7f00-8000-000000000001")

PLAIN = [
    *(str, int, float, bool, None, Any, object, list, dict),
    *(list[int], dict[str, Any], Sequence[str], Mapping[str, list[float]], Iterable[bool]),
    *(Optional[int], Union[int, str]),  # noqa: UP007, UP045 - both spellings are read
    *(int | str | None, list[dict[str, int | None]]),
    *(Literal["a", 1, True, None], InvoiceId, Annotated[int, "in cents"], "int", "list[str]"),
]

STORED = [
    (datetime, datetime(2026, 1, 31, 9, tzinfo=UTC), '"2026-01-31T09:00:00+00:00"'),
    (datetime, datetime(2026, 1, 31, 9), '"2026-01-31T09:00:00"'),  # noqa: DTZ001
    (date, date(2026, 1, 31), '"2026-01-31"'),
    (time, time(9, 0, 0, 5), '"09:00:00.000005"'),
    (timedelta, timedelta(days=1, hours=2, minutes=3, seconds=4.5), '"P1DT2H3M4.5S"'),
    (timedelta, timedelta(seconds=-90), '"-PT1M30S"'),
    (timedelta, timedelta(0), '"PT0S"'),
    (UUID, SOME_ID, f'"{SOME_ID}"'),
    (CustomerId, SOME_ID, f'"{SOME_ID}"'),
    (Decimal, Decimal("19.90"), '"19.90"'),
    (Decimal, Decimal("-0E+7"), '"-0E+7"'),
    (bytes, b"\x00\xffhello", '"AP9oZWxsbw=="'),
    (Path, Path("a/b.csv"), '"a/b.csv"'),
    (PurePosixPath, PurePosixPath("/a"), '"/a"'),
    (PureWindowsPath, PureWindowsPath("c:/a"), r'"c:\\a"'),
    (Color, Color.GREEN, '"green"'),
    (Size, Size.LARGE, "2"),
    (Mode, Mode.FAST, '"fast"'),
    (Odd, Odd.YES, "true"),
    (Odd, Odd.NONE, "null"),
    (Odd, Odd.ONE_AND_A_HALF, "1.5"),
    (Right, Right.READ | Right.WRITE, "3"),
    (Literal[Color.RED], Color.RED, '"red"'),
    (tuple[int, str], (1, "a"), '[1,"a"]'),
    (tuple[date, ...], (date(2026, 1, 31),), '["2026-01-31"]'),
    (tuple, (1, None), "[1,null]"),
    (tuple[()], (), "[]"),
    (set[str], {"b", "a", "c"}, '["a","b","c"]'),
    (frozenset[int], frozenset({10, 9}), "[10,9]"),
    (set, {1}, "[1]"),
    (AbstractSet[int], {1}, "[1]"),
    (list[Decimal], [Decimal("1.0")], '["1.0"]'),
    (Sequence[date], [date(2026, 1, 31)], '["2026-01-31"]'),
    (dict[str, date], {"due": date(2026, 1, 31)}, '{"due":"2026-01-31"}'),
    (dict[UUID, int], {SOME_ID: 1}, f'{{"{SOME_ID}":1}}'),
    (Mapping[Mode, bytes], {Mode.FAST: b""}, '{"fast":""}'),
    (Annotated[list[date | None], "days"], [None], "[null]"),
]


@pytest.mark.parametrize("annotation", PLAIN, ids=str)
def test_plain_annotations_need_no_codec(annotation: Any) -> None:
    assert codec_of(annotation) is None


@pytest.mark.parametrize(("annotation", "value", "stored"), STORED)
def test_a_value_is_stored_as_documented_and_comes_back_equal(
    annotation: Any, value: Any, stored: str
) -> None:
    text = text_of(annotation, value)
    assert text == f'{{"x":{stored}}}'
    back = value_of(annotation, text)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "kind", [datetime, date, time, timedelta, UUID, Decimal, bytes, Color, Size, Right], ids=str
)
@given(data=st.data())
def test_every_value_of_a_type_comes_back_equal(kind: Any, data: st.DataObject) -> None:
    strategies: dict[Any, st.SearchStrategy[Any]] = {
        Decimal: st.decimals(allow_nan=False),
        datetime: st.datetimes(timezones=st.none() | _zones | _offsets),
        time: st.times(timezones=st.none() | _offsets),
    }
    value = data.draw(strategies.get(kind, st.from_type(kind)))
    if getattr(value, "fold", 0) and value.utcoffset() is None:
        return
    back = round_trip(kind, value)
    assert type(back) is kind
    if kind is datetime and value.tzinfo is not None:
        # Python never calls times of different zones equal while a clock is set back.
        assert back.timestamp() == value.timestamp()
        assert back.utcoffset() == value.utcoffset()
        assert back.replace(tzinfo=None) == value.replace(tzinfo=None, fold=0)
    else:
        assert back == value
    if kind is Decimal:
        assert str(back) == str(value)


_zones = st.sampled_from(
    [ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns"), ZoneInfo("Australia/Lord_Howe")]
)
_offsets = st.builds(
    timezone,
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).filter(
        lambda offset: not offset or abs(offset) >= timedelta(seconds=1)
    ),
)


@pytest.mark.parametrize("microseconds", [1, -999_999])
def test_an_offset_that_python_reads_as_utc_is_refused(microseconds: int) -> None:
    zone = timezone(timedelta(microseconds=microseconds))
    for value in (datetime(2026, 1, 31, tzinfo=zone), time(9, tzinfo=zone)):
        assert "less than a second" in refusal_of(type(value), value)


@given(st.lists(st.uuids(), unique=True))
def test_equal_sets_have_equal_json(values: list[UUID]) -> None:
    forwards, backwards = dict.fromkeys(values), dict.fromkeys(reversed(values))
    assert text_of(set[UUID], set(forwards)) == text_of(set[UUID], set(backwards))


def test_the_offset_of_a_time_zone_is_kept_and_its_name_is_not() -> None:
    moment = datetime(2026, 7, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    back = round_trip(datetime, moment)
    assert back == moment
    assert back.utcoffset() == timedelta(hours=2)
    assert back.tzname() == "UTC+02:00"


def test_a_time_whose_zone_has_no_offset_without_a_date_is_refused() -> None:
    """It would arrive without its zone, as another time."""
    refusal = refusal_of(time, time(9, tzinfo=ZoneInfo("Europe/Berlin")))
    assert refusal.startswith("x: its time zone Europe/Berlin has no UTC offset without a date")
    assert round_trip(time, time(9, tzinfo=UTC)) == time(9, tzinfo=UTC)


@pytest.mark.parametrize("value", [datetime(2026, 10, 25, 2, fold=1), time(2, fold=1)])  # noqa: DTZ001
def test_a_fold_that_the_text_would_lose_is_refused(value: datetime | time) -> None:
    assert refusal_of(type(value), value).startswith("x: fold=1 is lost without a UTC offset")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P2W", 1_209_600),
        ("P1D", 86_400),
        ("PT1.5S", 1.5),
        ("-PT1H", -3600),
        ("P-1DT-2H", -93_600),  # as PostgreSQL writes an interval in the style iso_8601
        ("PT-0.5S", -0.5),
    ],
)
def test_durations_of_other_programs_are_read(text: str, seconds: float) -> None:
    assert value_of(timedelta, f'{{"x":"{text}"}}') == timedelta(seconds=seconds)


def test_a_time_with_the_letter_z_is_in_utc() -> None:
    moment = value_of(datetime, '{"x":"2026-01-31T09:00Z"}')
    assert moment == datetime(2026, 1, 31, 9, tzinfo=UTC)


WRONG = [
    (datetime, "2026-01-31T09:00:00", "x: expected datetime, got str"),
    (datetime, date(2026, 1, 31), "x: expected datetime, got date"),
    (date, datetime(2026, 1, 31, tzinfo=UTC), "x: expected date, got datetime"),
    (UUID, str(SOME_ID), "x: expected UUID, got str"),
    (UUID, None, "x: expected UUID, got None"),
    (Decimal, 1.5, "x: expected Decimal, got float"),
    (Decimal, 1, "x: expected Decimal, got int"),
    (bytes, "text", "x: expected bytes, got str"),
    (Path, "a/b", "x: expected Path, got str"),
    (Color, "red", "x: expected Color, got str"),
    (Size, 1, "x: expected Size, got int"),
    (Right, 1, "x: expected Right, got int"),
    (Literal[Color.RED], Color.GREEN, "x: expected Literal[<Color.RED: 'red'>], got Color"),
    (tuple[int, date], (1,), "x: expected 2 items, got 1"),
    (tuple[int, date], [1, date.min], "x: expected tuple, got list"),
    (tuple[int, date], (True, date.min), "x[0]: expected int, got bool"),
    (tuple[float, date], ("1", date.min), "x[0]: expected float, got str"),
    (tuple[bool, date], (1, date.min), "x[0]: expected bool, got int"),
    (tuple[str, date], (1, date.min), "x[0]: expected str, got int"),
    (list[date], (date.min,), "x: expected list, got tuple"),
    (list[list[date]], [[], [date.min, "a"]], "x[1][1]: expected date, got str"),
    (Sequence[date], "abc", "x: expected Sequence, got str"),
    (set[date], [date.min], "x: expected set, got list"),
    (dict[str, date], [("a", date.min)], "x: expected dict, got list"),
    (dict[str, date], {"a": 1}, "x.a: expected date, got int"),
    (dict[str, date], {"a b": 1}, "x['a b']: expected date, got int"),
    (dict[str, date], {1: date.min}, "x has a key that does not fit: expected str, got int"),
    (date | None, "a", "x: expected date | None, got str"),
    (list[date | None], [1], "x[0]: expected date | None, got int"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), WRONG)
def test_a_value_of_another_type_is_refused_when_it_is_enqueued(
    annotation: Any, value: Any, message: str
) -> None:
    assert refusal_of(annotation, value) == message


WRONG_JSON = [
    (datetime, "2026-02-31T00:00:00"),
    (datetime, "2026-01-31 09:00:00"),
    (datetime, "2026-01-31"),
    (datetime, "2026-01-31T09:00:00.1234567"),
    (datetime, 1_769_850_000),
    (date, "2026-01-31T00:00:00"),
    (date, "20260131"),
    (time, "9:00"),
    (time, "25:00:00"),
    (timedelta, "P"),
    (timedelta, "PT"),
    (timedelta, "P1DT"),
    (timedelta, "P1Y"),
    (timedelta, "P1000000000D"),
    (timedelta, f"P{'9' * 5000}D"),
    (timedelta, 60),
    (UUID, "0190a5f27c3e7f008000000000000001"),
    (UUID, f"{{{SOME_ID}}}"),
    (Decimal, 19.99),
    (Decimal, 19),
    (Decimal, " 1"),
    (Decimal, "1_000"),
    (Decimal, "१"),
    (Decimal, "1e99999999999999999999"),
    (bytes, "a"),
    (bytes, "a-_="),
    (Color, "RED"),
    (Size, True),
    (Size, "1"),
    (Odd, 1),
    (Right, 4),
    (Right, 1.0),
    (Path, 1),
    (set[date], {"a": "b"}),
    (dict[str, date], []),
    (tuple[date, date], "ab"),
]


@pytest.mark.parametrize(("annotation", "value"), WRONG_JSON, ids=lambda value: str(value)[:40])
def test_json_of_another_form_is_refused_when_the_job_runs(annotation: Any, value: Any) -> None:
    assert json_refusal_of(annotation, value).startswith("x: expected ")


def test_a_refusal_says_which_json_is_expected_and_never_shows_the_value() -> None:
    assert json_refusal_of(datetime, "secret") == (
        'x: expected datetime as a string such as "2026-01-31T09:00:00+01:00", got another string'
    )
    assert json_refusal_of(list[Decimal], ["1", 1.5]) == (
        'x[1]: expected Decimal as a string such as "19.99", got a number'
    )
    assert json_refusal_of(Color, "blue") == (
        "x: expected Color as one of 'red', 'green', got another string"
    )
    assert json_refusal_of(date, None).endswith("got null")


def test_an_int_is_accepted_for_a_float_and_arrives_as_one() -> None:
    back = round_trip(tuple[float, date], (1, date.min))
    assert type(back[0]) is float
    assert math.isclose(back[0], 1.0)


def test_a_number_that_postgresql_wrote_without_exponent_is_the_same_member() -> None:
    assert value_of(Odd, '{"x":100}') is Odd.HUNDRED


def test_any_values_inside_are_checked_by_the_payload() -> None:
    with pytest.raises(Exception, match=r"payload\.x\.a is an object, which JSON cannot hold"):
        text_of(dict[Mode | Literal["a"], Any], {"a": object()})


def test_a_set_of_unhashable_json_is_refused() -> None:
    assert json_refusal_of(set, [[1]]) == "x: the items of a set must be hashable"


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            socket.socket,
            "a socket.socket cannot be stored as JSON (pass what identifies it, such as an id or a"
            " path, and let the handler build it; or use a dataclass)",
        ),
        (list[socket.socket], "a socket.socket cannot be stored as JSON"),
        (dict[int, str], "the keys of dict[int, …] are no strings in JSON (use str keys"),
        (Rgb, "the value of Rgb.RED is a tuple, and enums are stored by value (give every"),
        (Literal[b"a"], "Literal[b'a'] cannot be stored as JSON"),
        (type[int], "a builtins.type cannot be stored as JSON"),
        (5, "5 cannot be stored as JSON"),
        ("1 2", "its annotation '1 2' is no Python expression"),
        (complex, "a builtins.complex cannot be stored as JSON"),
    ],
    ids=str,
)
def test_an_annotation_that_json_cannot_hold_is_refused_at_the_definition(
    annotation: Any, message: str
) -> None:
    assert definition_refusal_of(annotation).startswith(message)
