"""Events as records of the logging module, where no event log was opened.

That is so in programs that embed Faultline, for example by `async with app.worker()`: they configure
logging themselves. The fields of an event are attributes of its record, with the prefix `faultline_`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

PREFIX = "faultline_"
_logger = logging.getLogger("faultline")
_MAX_VALUE_LENGTH = 500  # of one field in the message
# Texts of many lines, which formatters write below the message.
_BELOW = {"traceback": "exc_text", "stack": "stack_info"}


def is_enabled(level: int) -> bool:
    return _logger.isEnabledFor(level)


def write(event: str, level: int, fields: Mapping[str, Any]) -> None:
    """Pass an event to the logger `faultline`; never raises an Exception."""
    if not _logger.isEnabledFor(level):
        return
    with contextlib.suppress(Exception):  # a filter of the user must not end an attempt
        shown = [_pair(name, value) for name, value in fields.items() if name not in _BELOW]
        message = " ".join([event, *filter(None, shown)])
        record = _logger.makeRecord(_logger.name, level, "(unknown file)", 0, message, (), None)
        record.__dict__[f"{PREFIX}event"] = event
        for name, value in fields.items():
            if name in _BELOW:
                record.__dict__[_BELOW[name]] = _encodable(value)
            else:
                record.__dict__[PREFIX + name] = value
        _logger.handle(record)


def _encodable(text: object) -> str | None:
    """Escape lone surrogates of handlers' errors: UTF-8 cannot store them."""
    return None if text is None else str(text).encode("utf-8", "backslashreplace").decode()


def _pair(name: str, value: object) -> str:
    """name=value, with quotes if the value has blanks; empty if there is no value."""
    if value is None:
        return ""
    text = str(value)
    if len(text) > _MAX_VALUE_LENGTH:
        text = f"{text[: _MAX_VALUE_LENGTH - 1]}…"
    return f"{name}={text if text.isprintable() and ' ' not in text else repr(text)}"
