"""Passwords that slip into the text of an error are taken out of it before it is stored or logged.

For what others wrote: a handler's error may quote the connection string that it could not use. It is the
last resort, not a promise: a secret that does not look like one is not recognised.
"""

from __future__ import annotations

import re

_HIDDEN = "***"
# scheme://user:PASSWORD@host, where the password may hold what should have been escaped. Each part has a
# bound: without one a long text of dots takes minutes, in which no other thread of the worker runs.
_IN_URL = re.compile(
    r"\b([a-z][a-z0-9+.-]{0,30}://[^\s:/@'\"]{0,300}:)[^\s'\"]{0,500}@", re.IGNORECASE
)
_AS_PAIR = re.compile(
    r"(password\s{0,9}=\s{0,9})(?:'(?:[^'\\]|\\.)*'|[^\s,;)&'\"]+)", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    return _AS_PAIR.sub(rf"\1{_HIDDEN}", _IN_URL.sub(rf"\1{_HIDDEN}@", text))
