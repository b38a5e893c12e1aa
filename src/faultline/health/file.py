"""A report as a file: written whole or not at all, and read without waiting for anybody."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from faultline.health.report import Report, from_json, to_json

_LARGEST = 1 << 20


def write(path: Path, report: Report) -> None:
    """Under another name first, in the same directory: a reader sees the old report or the new one."""
    draft = path.with_name(f"{_draft_prefix(path)}{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(draft, flags, 0o644), "w") as file:  # noqa: PTH123 - a descriptor
        json.dump(to_json(report), file)
    draft.replace(path)


def remove(path: Path) -> None:
    """With the drafts of writers that were killed while they wrote: nobody else would."""
    for each in (path, *_drafts(path)):
        with contextlib.suppress(OSError):
            each.unlink()


def _draft_prefix(path: Path) -> str:
    return f".{path.name}."


def _drafts(path: Path) -> Iterator[Path]:
    prefix = _draft_prefix(path)
    with contextlib.suppress(OSError):
        for each in path.parent.iterdir():
            if each.name.startswith(prefix) and each.name.removeprefix(prefix).isdigit():
                yield each


def read(path: Path) -> Report | None:
    """None when there is no such file; ValueError when it is no report, OSError when it cannot be read."""
    try:
        with path.open() as file:
            return from_json(json.loads(file.read(_LARGEST)))
    except FileNotFoundError:
        return None
