"""A report as a file: written whole or not at all, and read without waiting for anybody."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from faultline.health.report import Report, from_json, to_json

_LARGEST = 1 << 20


def write(path: Path, report: Report) -> None:
    """Under another name first, in the same directory: a reader sees the old report or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(draft, flags, 0o644), "w") as file:  # noqa: PTH123 - a descriptor
        json.dump(to_json(report), file)
    draft.replace(path)


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def read(path: Path) -> Report | None:
    """None when there is no such file; ValueError when it is no report, OSError when it cannot be read."""
    try:
        with path.open() as file:
            return from_json(json.loads(file.read(_LARGEST)))
    except FileNotFoundError:
        return None
