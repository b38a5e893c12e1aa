"""How commands speak: tables for people, JSON for scripts, and nothing that a terminal would obey."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import orjson

from faultline.cli.plain import plain

if TYPE_CHECKING:  # a worker prints no tables, and starts faster without what draws them
    from rich.console import Console
    from rich.text import Text

_WIDTH_OF_A_PIPE = 200  # a job's id is never folded where nobody looks
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
LEVEL_COLORS = {"ok": "green", "warning": "yellow", "problem": "red"}


def print_json(value: Any) -> None:
    click.echo(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2))


def one_line(value: object, limit: int = 200) -> str:
    text = " ".join(plain(value).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def duration(seconds: float) -> str:
    """A span of time as people say it: 0.24 s, 12.5 s, 3 min 20 s, 5 h 4 min, 2 d 7 h."""
    if seconds < _MINUTE:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, name, smaller, smaller_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    raise AssertionError(whole)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_table(columns: list[str], rows: list[list[str | Text]], *, title: str = "") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=Text(title) if title else None, title_justify="left", box=None)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in row))
    console().print(table)


def console() -> Console:
    """Made for each use: whoever runs the command decides what stdout is just then."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)
