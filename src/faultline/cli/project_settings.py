"""Reads [tool.faultline] of the nearest pyproject.toml: the default of --app."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultline.errors import InvalidSettings
from faultline.suggestions import did_you_mean

FILE = "pyproject.toml"
TABLE = "[tool.faultline]"
_KEYS = ("app",)
_EXAMPLE = f'{TABLE} app = "shop.jobs:app"'
_MAX_PARENTS = 100


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """`folder` is where pyproject.toml was found: modules are imported from there."""

    app: str | None = None
    folder: Path | None = None


def read_project_settings(start: Path) -> ProjectSettings:
    """The settings of the nearest pyproject.toml with a table [tool.faultline].

    It is searched in `start` and its parents. In a parent, a file of another account is ignored: the
    settings name code to import, and every account may create a file in a folder such as /tmp.
    """
    for folder in [start, *start.parents][:_MAX_PARENTS]:
        file = folder / FILE
        try:
            if folder != start and not _is_trusted(file):
                continue
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError:
            continue
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidSettings(
                f"{file} is not valid TOML: {error}", hint="mend the file, or give --app"
            ) from None
        tools = content.get("tool")
        table = tools.get("faultline") if isinstance(tools, dict) else None
        if table is not None:
            return ProjectSettings(_app_of(table, file), folder)
    return ProjectSettings()


def _app_of(table: Any, file: Path) -> str | None:
    if not isinstance(table, dict):
        raise InvalidSettings(f"{file}: tool.faultline is not a table", hint=_EXAMPLE)
    for key in table:
        if key not in _KEYS:
            raise InvalidSettings(
                f"{file}: {TABLE} has an unknown key {key!r}",
                hint=did_you_mean(key, _KEYS) or f"the only key is app: {_EXAMPLE}",
            )
    app = table.get("app")
    if app is None:
        return None
    if not isinstance(app, str) or not all(app.partition(":")):
        raise InvalidSettings(f"{file}: app in {TABLE} is not MODULE:NAME", hint=_EXAMPLE)
    return app


def _is_trusted(file: Path) -> bool:
    """Whether the file belongs to this account or to root."""
    return not hasattr(os, "getuid") or file.stat().st_uid in (0, os.getuid())
