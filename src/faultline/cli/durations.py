"""Durations on the command line: seconds, or a number with a unit (90s, 5m)."""

from __future__ import annotations

import re
from typing import Any

import click

_FORM = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|min|m|h|d|w)\Z")
_SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
METAVAR = "DURATION"


def with_unit(text: str) -> float | None:
    """The seconds of 90s, 5m, 5min, 12h, 7d or 2w; None for other text."""
    found = _FORM.match(text)
    return None if found is None else float(found[1]) * _SECONDS[found[2]]


class Duration(click.ParamType[float]):
    """Seconds as a number, or a number with a unit."""

    name = "duration"

    def __init__(self, *, is_whole: bool = False) -> None:
        self._is_whole = is_whole

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if not isinstance(value, str):
            return float(value)
        seconds = with_unit(value)
        if seconds is None:
            try:
                seconds = float(value)
            except ValueError:
                self.fail(f"{value[:80]!r} is no duration (30, 90s, 5m, 12h, 7d).", param, ctx)
        if self._is_whole:
            if not seconds.is_integer():  # NaN and infinity too
                self.fail(f"{value[:80]!r} is no whole number of seconds.", param, ctx)
            return int(seconds)
        return seconds
