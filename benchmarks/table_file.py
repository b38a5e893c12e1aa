"""Writes a measurement's table to a file that names the command it came from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_table(path: Path, title: str, rows: Sequence[str], origin: str = "") -> None:
    """Write a Markdown page of one table. The first row has the titles of its columns.

    `origin` says what was measured, if the command does not.
    """
    columns = rows[0].count("|") - 1
    options = " ".join(sys.argv[1:])
    module = Path(sys.argv[0]).stem
    page = [f"# {title}", "", f"made by: `python -m benchmarks.{module} {options}`".strip(), ""]
    page += [origin, ""] if origin else []
    path.write_text("\n".join([*page, rows[0], "|---" * columns + "|", *rows[1:]]) + "\n")
