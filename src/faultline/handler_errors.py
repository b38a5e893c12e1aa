"""Makes handlers' exceptions safe to inspect, and formats them as text.

A handler's exception is user code: its `str()` may raise SystemExit, its `__class__` may be wrong, its
`__cause__` may be a property that returns a new exception each time. The worker reads many attributes of
an exception. `make_safe` reads them once, catches everything, and replaces an exception that is not safe.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from concurrent.futures import thread
from pathlib import Path
from types import TracebackType
from typing import Any

from faultline.errors import HandlerError, HandlerExit
from faultline.wording import without_passwords

_MAX_ERROR_LENGTH = 10_000
_SUMMARY_LENGTH = 500
_LOGGED_LENGTH = 8_000
# How many causes, contexts and members of groups are read and shown.
_MAX_LINKED = 100
_MAX_NOTES = 20
# Code that calls handlers: Faultline, and what it needs of the standard library for that.
_CALLERS = tuple(
    f"{Path(file).parent}{os.sep}" for file in (__file__, asyncio.__file__, thread.__file__)
)
_ATTEMPT = str(Path(__file__).parent / "workers" / "attempt.py")
_NO_MESSAGE = "(its message cannot be shown)"

# The attributes that CPython stores. A class can override them with properties.
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__
_trace = BaseException.__dict__["__traceback__"].__get__


def make_safe(error: BaseException) -> Exception:
    """The error itself if it is safe, else a HandlerError or HandlerExit."""
    if not issubclass(type(error), Exception):
        return HandlerExit.of(error).with_traceback(_trace(error))
    if _behaves(error):
        return error  # type: ignore[return-value]  # issubclass: isinstance would read the error's __class__
    return HandlerError(f"{name_of(error)}: {text_of(error)}").with_traceback(_trace(error))


def _behaves(error: BaseException) -> bool:
    try:
        linked = _linked(error)
        return (
            len(linked) <= _MAX_LINKED
            and all(_is_plain(each) for each in linked)
            and isinstance(getattr(error, "sqlstate", None), str | None)
            and isinstance(str(error), str)
        )
    except BaseException:
        return False


def _linked(error: BaseException) -> list[BaseException]:
    """The error, its causes, contexts and members of groups; at most _MAX_LINKED + 1."""
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) <= _MAX_LINKED:
        each = waiting.pop()
        if each is None or id(each) in found:
            continue
        found[id(each)] = each
        waiting += [_cause(each), _context(each)]
        if issubclass(type(each), BaseExceptionGroup):
            waiting += BaseExceptionGroup.exceptions.__get__(each)[: _MAX_LINKED + 1]
    return list(found.values())


def _is_plain(error: Any) -> bool:
    """Whether its attributes are those that CPython stores; may raise anything."""
    notes = getattr(error, "__notes__", None)
    return (
        error.__class__ is type(error)
        and isinstance(type(error).__name__, str)
        and error.__cause__ is _cause(error)
        and error.__context__ is _context(error)
        and error.__traceback__ is _trace(error)
        and (notes is None or (type(notes) is list and len(notes) <= _MAX_NOTES))
    )


def name_of(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:  # raised by a metaclass
        return "an exception without a name"


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return _NO_MESSAGE


def summary(error: BaseException) -> str:
    """One line about the error, even if its own methods fail."""
    # Read ten times what is kept, so that a password is not cut in half before it is recognised.
    text = f"{name_of(error)}: {text_of(error)[: 10 * _SUMMARY_LENGTH]}"
    return without_passwords(text)[:_SUMMARY_LENGTH]


def describe(error: BaseException) -> str:
    """The error as text that PostgreSQL can store: bounded, without NUL."""
    trace = without_passwords(traceback_of(error)[: 2 * _MAX_ERROR_LENGTH]).strip()
    text = f"{summary(error)}\n\n{trace}"[:_MAX_ERROR_LENGTH]
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def logged_traceback(error: BaseException) -> str | None:
    """The end of the traceback for a log line; None if the error was not raised."""
    if _trace(error) is None:
        return None
    return shortened(traceback_of(error))


def shortened(trace: str) -> str:
    """The end of a traceback, which names the error; at most _LOGGED_LENGTH long."""
    trace = without_passwords(trace[-2 * _LOGGED_LENGTH :]).rstrip()
    return trace if len(trace) <= _LOGGED_LENGTH else "…" + trace[1 - _LOGGED_LENGTH :]


def traceback_of(error: BaseException) -> str:
    """The traceback from the handler on; for an unsafe error only where it was raised."""
    trace = _from_the_handler(_trace(error))
    if _behaves(error):
        try:
            return "".join(traceback.format_exception(type(error), error, trace))
        except BaseException:  # noqa: S110 - it is not safe after all; the lines below read only stored attributes
            pass
    return "".join([*traceback.format_tb(trace), summary(error)])


def _from_the_handler(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the worker's frames above the handler, unless there are no others."""
    found = each = trace
    # An SDK may wrap what a thread runs, as Sentry's does: its frames are above those of the attempt.
    while each is not None:
        if each.tb_frame.f_code.co_filename == _ATTEMPT:
            found = each
        each = each.tb_next
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_CALLERS):
        found = found.tb_next
    return trace if found is None else found
