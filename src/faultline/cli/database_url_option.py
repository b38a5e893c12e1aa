"""A password on our own command line: kept from the process list, and from our children's.

Everyone on a machine may read the command line of every process. What is in the environment, only the
same account and root.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from faultline.postgres.driver import ProgrammingError, conninfo

OPTION = "--database-url"
# Of /proc/self/stat, behind the name of the program, which may hold anything: the addresses of the
# first byte of the command line, and of the one after the last.
_BEGINNING, _END = 45, 46


def without_url(words: Sequence[str]) -> list[str]:
    """This command line without --database-url; the environment tells a child where the database is."""
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
    """Blank out every URL with a password, or say that others can read it. Until here they could: a
    moment, and the shell's history."""
    for url in _urls_with_passwords(words):
        if not _blank(url):
            click.echo(
                f"warning: everyone on this machine can read the password in {OPTION} in the process"
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
                parts = {"password": "it may hold one"}
            if parts.get("password"):
                yield url


def _blank(url: str) -> bool:
    """Overwrite it where the kernel reads command lines from: our own memory, which Python has copied."""
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
