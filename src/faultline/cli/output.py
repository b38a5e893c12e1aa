"""How commands speak: tables for people, JSON for scripts, and nothing that a terminal would obey."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import orjson

from faultline.wording import count, duration, one_line, plain

if TYPE_CHECKING:  # a worker prints no tables, and starts faster without what draws them
    from rich.console import Console
    from rich.text import Text

_WIDTH_OF_A_PIPE = 200  # a job's id is never folded where nobody looks
__all__ = ["LEVEL_COLORS", "console", "count", "duration", "one_line", "print_json", "print_table"]
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
    """Made for each use: whoever runs the command decides what stdout is just then."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)
