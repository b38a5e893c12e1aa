"""Keeps the password in --database-url out of the process list.

Every account of a machine can read the command line of every process, but the environment of a process
can be read only by its own account and by root.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from faultline.postgres.driver import ProgrammingError, conninfo

OPTION = "--database-url"
# Fields of /proc/self/stat, counted after the program's name: the address of the command line's first
# byte, and of the byte after its last one.
_BEGINNING, _END = 45, 46


def without_url(words: Sequence[str]) -> list[str]:
    """The command line without --database-url, for child processes."""
    kept: list[str] = []
    is_value = False
    for word in words:
        if is_value:
            is_value = False
        elif word == OPTION:
            is_value = True
        elif not word.startswith(f"{OPTION}="):
            kept.append(word)
    return kept


def conceal_passwords(words: Sequence[str]) -> None:
    """Overwrite each URL that has a password, or warn that it can be read.

    It was readable until here, and the shell's history keeps it.
    """
    for url in _urls_with_passwords(words):
        if not _blank(url):
            click.echo(
                f"warning: every account of this machine can read the password in {OPTION} in the process"
                " list; use DATABASE_URL, DATABASE_URL_FILE or a passfile",
                err=True,
            )


def _urls_with_passwords(words: Sequence[str]) -> Iterator[str]:
    for before, word in zip(["", *words], words, strict=False):
        url = word if before == OPTION else word.removeprefix(f"{OPTION}=")
        if before == OPTION or url != word:
            try:
                parts = conninfo.conninfo_to_dict(url)
            except ProgrammingError:
                parts = {"password": "unreadable, so assume one"}
            if parts.get("password"):
                yield url


def _blank(url: str) -> bool:
    """Overwrite the URL in the memory that the kernel shows as our command line."""
    if sys.platform != "linux":
        return False
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        beginning, end = int(fields[_BEGINNING]), int(fields[_END])
        secret = url.encode("utf-8", "surrogateescape")
        found = ctypes.string_at(beginning, end - beginning).find(secret)
    except (OSError, ValueError, IndexError):
        return False
    if found < 0 or not secret:
        return False
    ctypes.memset(beginning + found, ord("*"), len(secret))
    return secret not in Path("/proc/self/cmdline").read_bytes()
