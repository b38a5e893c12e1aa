"""Formats numbers, durations and untrusted text for output."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def plain(value: object) -> str:
    """Escape control characters, so that stored text cannot control the terminal."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in str(value)
    )


def one_line(value: object, limit: int = 200) -> str:
    text = " ".join(plain(value).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def duration(seconds: float) -> str:
    """Format seconds as 0.24 s, 12.5 s, 3 min 20 s, 5 h 4 min or 2 d 7 h."""
    if seconds < _MINUTE:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, name, smaller, smaller_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    raise AssertionError(whole)


def first_line(text: str | None) -> str:
    """The first line that is not blank: of an error without its traceback."""
    return next(filter(None, map(str.strip, (text or "").splitlines())), "")


def listing(names: Sequence[str], limit: int) -> str:
    """a, b and 3 more"""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_HIDDEN = "***"


# scheme://user:PASSWORD@host, where the password may contain characters that should be escaped. Each part
# is bounded: otherwise a long text of dots takes minutes, and blocks all threads of the worker.
_IN_URL = re.compile(
    r"\b([a-z][a-z0-9+.-]{0,30}://[^\s:/@'\"]{0,300}:)[^\s'\"]{0,500}@", re.IGNORECASE
)


_AS_PAIR = re.compile(
    r"(password\s{0,9}=\s{0,9})(?:'(?:[^'\\]|\\.)*'|[^\s,;)&'\"]+)", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """Remove passwords from the text of an error before it is stored or logged.

    A handler's error may quote a connection string, for example. This is a last resort and no guarantee:
    only text that looks like a password is recognised.
    """
    return _AS_PAIR.sub(rf"\1{_HIDDEN}", _IN_URL.sub(rf"\1{_HIDDEN}@", text))


def with_article(noun: str) -> str:
    """The noun with its article: a date, an object."""
    return f"an {noun}" if noun[:1].lower() in tuple("aeio") else f"a {noun}"
