"""Reads the database URL from DATABASE_URL or the file of DATABASE_URL_FILE."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from faultline.errors import InvalidSettings

VARIABLE = "DATABASE_URL"
FILE_VARIABLE = "DATABASE_URL_FILE"
_LONGEST_BYTES = 64 * 1024


def from_environment() -> str | None:
    """The URL; None if neither variable is set.

    Every enqueue asks for it. The file is read again only when it was replaced, as a renewed secret is.
    """
    url, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if not path:
        return url or None
    if url:
        raise InvalidSettings(
            f"{VARIABLE} and {FILE_VARIABLE} are both set", hint="unset one of them"
        )
    try:
        found = Path(path).stat()
        return _read(path, found.st_ino, found.st_mtime_ns)
    except OSError as error:
        raise InvalidSettings(
            f"{FILE_VARIABLE} names {path}, which cannot be read: {error.strerror}",
            hint="it must be a file that this account may read",
        ) from None


@lru_cache(maxsize=1)
def _read(path: str, inode: int, changed_at: int) -> str:
    """Read the URL from a file. Its content is a secret and appears in no message."""
    with Path(path).open("rb") as file:
        content = file.read(_LONGEST_BYTES + 1)
    try:
        url = content.decode().strip()
    except UnicodeDecodeError:
        url = ""
    if not url or len(content) > _LONGEST_BYTES or "\0" in url:
        raise InvalidSettings(
            f"{FILE_VARIABLE} names {path}, which does not hold a database URL",
            hint="postgresql://user:password@host:5432/database and nothing else",
        )
    return url


def environment_with(url: str) -> dict[str, str]:
    """The environment of a child process with this URL: command lines are public."""
    inherited = {name: value for name, value in os.environ.items() if name != FILE_VARIABLE}
    return {**inherited, VARIABLE: url}
