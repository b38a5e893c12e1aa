"""Removes passwords from the text of an error before it is stored or logged.

A handler's error may quote a connection string, for example. This is a last resort and no guarantee: only
text that looks like a password is recognised.
"""

from __future__ import annotations

import re

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
    return _AS_PAIR.sub(rf"\1{_HIDDEN}", _IN_URL.sub(rf"\1{_HIDDEN}@", text))
