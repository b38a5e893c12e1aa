"""The summaries of drills and benchmarks that were left in a folder."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

NAMES = ("benchmark_summary", "performance")
LARGEST_BYTES = 2**20


def found_in(folder: Path) -> list[dict[str, Any]]:
    """Those that can be read; a file that is being written, or is too large, is left out."""
    return [report for name in NAMES if (report := _read(folder / f"{name}.json")) is not None]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        about = path.stat()
        if about.st_size > LARGEST_BYTES:
            return None
        summary = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    written_at = datetime.fromtimestamp(about.st_mtime, UTC)
    return {"name": path.stem, "written_at": written_at, "summary": summary}
