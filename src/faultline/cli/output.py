"""Prints tables and JSON; control characters in the data are escaped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import orjson

from faultline.wording import count, duration, one_line, plain

if TYPE_CHECKING:  # a worker prints no tables, and starts faster without rich
    from rich.console import Console
    from rich.text import Text

_PIPE_WIDTH = 200  # wide enough that a job's id is not folded
__all__ = [
    "LEVEL_COLORS",
    "console",
    "count",
    "duration",
    "json_option",
    "one_line",
    "print_json",
    "print_table",
]
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
LEVEL_COLORS = {"ok": "green", "warning": "yellow", "problem": "red"}


def print_json(value: Any) -> None:
    click.echo(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2))


def print_table(columns: list[str], rows: list[list[str | Text]], *, title: str = "") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=Text(title) if title else None, title_justify="left", box=None)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in row))
    console().print(table)


def console() -> Console:
    """A console on the current sys.stdout, which a test may have replaced."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)
