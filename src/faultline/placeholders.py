"""Turns the placeholders of psycopg into those of drivers that number them."""

from __future__ import annotations

import functools
import itertools
import re

_PLACEHOLDER = re.compile(r"%s(::(?:jsonb|uuid)\b(?!\[))?|%%")


@functools.cache  # the statements of Faultline are few
def numbered(sql: str) -> str:
    """The statement with `$1` for the first `%s`.

    JSON and UUIDs are sent as text, which PostgreSQL converts: an application may have set codecs for
    these types, which expect other values than Faultline's.
    """
    numbers = itertools.count(1)

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        cast = "" if found[1] is None else f"::text{found[1]}"
        return f"${next(numbers)}{cast}"

    return _PLACEHOLDER.sub(replaced, sql)
