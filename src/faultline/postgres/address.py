"""Where the environment says that the database is: in DATABASE_URL, or in the file of DATABASE_URL_FILE."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from faultline.errors import InvalidSettings

VARIABLE = "DATABASE_URL"
FILE_VARIABLE = "DATABASE_URL_FILE"
_LONGEST_BYTES = 64 * 1024


def from_environment() -> str | None:
    """None where neither is set. It is asked for with every enqueue: a file is read again only when it is
    another, as a secret is that was renewed."""
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
    """What it holds without the white space around it. Its content is in no message: it is a secret."""
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
    """Our environment with this URL in it: for a child process, whose command line anyone may read."""
    inherited = {name: value for name, value in os.environ.items() if name != FILE_VARIABLE}
    return {**inherited, VARIABLE: url}
