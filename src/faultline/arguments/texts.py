"""Codecs of values that JSON holds as strings: times, UUID, Decimal, bytes, paths."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

from faultline.arguments.codec import Codec, JsonKind, Mismatch

_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_OFFSET = r"(?:Z|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{6})?)?)?"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DECIMAL = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|Infinity|s?NaN[0-9]*)"
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?=.*[0-9][WDHMS]\Z)(?:(?P<weeks>-?[0-9]+)W)?(?:(?P<days>-?[0-9]+)D)?"
    r"(?:T(?:(?P<hours>-?[0-9]+)H)?(?:(?P<minutes>-?[0-9]+)M)?"
    r"(?:(?P<seconds>-?[0-9]+(?:\.[0-9]{1,6})?)S)?)?"
)


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a type is written as a string and read from it."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]  # raises ValueError, ArithmeticError
    example: str
    pattern: re.Pattern[str] | None = None
    text_format: str | None = None  # of those that have one, no string matches two patterns


class TextCodec(Codec):
    kinds = frozenset({JsonKind.STRING})

    def __init__(self, python_type: type, form: TextForm) -> None:
        self.name = python_type.__name__
        self.form = f"a string such as {form.example}"
        self.text_format = form.text_format
        self._type = python_type
        self._text_form = form
        self._refused = datetime if python_type is date else ()

    def encode(self, value: Any) -> str:
        if not isinstance(value, self._type) or isinstance(value, self._refused):
            raise self.refuse(value)
        return self._text_form.write(value)

    def decode(self, value: Any) -> Any:
        form = self._text_form
        if type(value) is not str or not (form.pattern is None or form.pattern.fullmatch(value)):
            raise self.refuse_json(value)
        try:
            return form.read(value)
        except (ValueError, ArithmeticError):  # the 31st of February, a year beyond 9999
            raise self.refuse_json(value) from None

    def is_type_of(self, value: Any) -> bool:
        return type(value) is self._type


def text_codec(python_type: Any) -> TextCodec | None:
    form = _FORMS.get(python_type)
    return None if form is None else TextCodec(python_type, form)


def _write_datetime(value: datetime) -> str:
    _refuse_lost_zone(value)
    return datetime.isoformat(value)


def _write_time(value: time) -> str:
    _refuse_lost_zone(value)
    return time.isoformat(value)


def _refuse_lost_zone(value: datetime | time) -> None:
    """Refuse values that would arrive without their time zone, or without their fold.

    The text has the UTC offset of a value. Without a date a zone such as Europe/Berlin has none. Without
    an offset the text does not say which of two equal clock times is meant. Python reads an offset of less
    than a second as UTC.
    """
    offset = value.utcoffset()
    if offset is not None:
        if offset and abs(offset) < timedelta(seconds=1):
            raise Mismatch("a UTC offset of less than a second is lost")
        return
    if value.tzinfo is not None:
        raise Mismatch(
            f"its time zone {str(value.tzinfo)[:80]} has no UTC offset without a date;"
            " pass a datetime, or the time and the name of the zone"
        )
    if value.fold:
        raise Mismatch("fold=1 is lost without a UTC offset; give the value a time zone")


def _write_duration(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, micros = divmod(micros, 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    second = f"{seconds}.{micros:06}".rstrip("0") if micros else str(seconds)
    day = f"{days}D" if days else ""
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    clock += f"{second}S" if second != "0" or not (day or clock) else ""
    return f"{sign}P{day}{'T' if clock else ''}{clock}"


def _read_duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    whole = {unit: int(found[unit] or 0) for unit in ("weeks", "days", "hours", "minutes")}
    micros = int(Decimal(found["seconds"] or 0) * 1_000_000)
    duration = timedelta(**whole, microseconds=micros)
    return -duration if found["sign"] == "-" else duration


def _read_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _path_form(python_type: type[PurePath]) -> TextForm:
    return TextForm(str, python_type, '"reports/2026.csv"')


_FORMS: dict[Any, TextForm] = {
    datetime: TextForm(
        _write_datetime,
        datetime.fromisoformat,
        '"2026-01-31T09:00:00+01:00"',
        re.compile(f"{_DATE}T{_CLOCK}{_OFFSET}"),
        "datetime",
    ),
    date: TextForm(date.isoformat, date.fromisoformat, '"2026-01-31"', re.compile(_DATE), "date"),
    time: TextForm(
        _write_time, time.fromisoformat, '"09:00:00"', re.compile(f"{_CLOCK}{_OFFSET}"), "time"
    ),
    timedelta: TextForm(_write_duration, _read_duration, '"P1DT2H30M"', _DURATION, "duration"),
    UUID: TextForm(
        str,
        UUID,
        '"0190a5f2-7c3e-7f00-8000-000000000000"',
        re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
        "uuid",
    ),
    Decimal: TextForm(str, Decimal, '"19.99"', re.compile(_DECIMAL), "decimal"),
    bytes: TextForm(lambda value: base64.b64encode(value).decode(), _read_base64, '"aGVsbG8="'),
    Path: _path_form(Path),
    PurePath: _path_form(PurePath),
    PurePosixPath: _path_form(PurePosixPath),
    PureWindowsPath: _path_form(PureWindowsPath),
}
