"""The points of a handler at which faults are injected."""

from __future__ import annotations

import asyncio
import inspect
import re
import sysconfig
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, assert_never

import faultline
from faultline.postgres.sessions import configure, configure_async

_MAX_LABEL_LENGTH = 48
# Django names savepoints by the thread, which differs from run to run.
_SAVEPOINT = re.compile(r'"s\d+_x(\d+)"')
_FAULTLINE = str(Path(faultline.__file__).parent)
_LIBRARIES = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_DATABASE_PACKAGES = ("psycopg", "psycopg_pool", "psycopg_binary", "psycopg_c", "asyncpg")
_FUNCTION = re.compile(r"faultline\.(\w+)\s*\(")
# Generators of psycopg that begin a transaction or a savepoint, change a setting of the connection object,
# or wait for notifications.
_NOT_A_CALL = re.compile(r"_set_|_enter_gen|notifies")
_CONNECTION_SETUP = (configure.__code__, configure_async.__code__)
# Where libraries open and check their connections: the end of a file's path, and the function.
_LIBRARY_SETUP = (
    ("sqlalchemy/pool/base.py", "__connect"),
    ("sqlalchemy/engine/default.py", "_do_ping_w_event"),
    ("django/db/backends/base/base.py", "connect"),
    ("django/db/backends/base/base.py", "close_if_health_check_failed"),
    ("asyncpg/pool.py", "connect"),
    ("asyncpg/pool.py", "release"),
)
_MAX_DEPTH = 200


class PointKind(StrEnum):
    AWAIT = "await"  # the handler waits for something that is not the database
    DATABASE = "database"  # the handler is about to send something to the database
    OUTSIDE = "outside"  # the handler is about to call a service of `Outside`
    END = "end"  # the handler has returned, and the worker has not committed the job yet


@dataclass(frozen=True, slots=True)
class Point:
    """The n-th time that a handler reaches a line of code."""

    kind: PointKind
    where: str  # file:line of the user's code
    what: str
    nth: int

    def __str__(self) -> str:
        repetition = f"  ({self.nth})" if self.nth > 1 else ""
        return f"{self.where}  {self.what}{repetition}"

    @property
    def moment(self) -> str:
        match self.kind:
            case PointKind.AWAIT:
                return f"at {self.where}, in {self.what}"
            case PointKind.DATABASE | PointKind.OUTSIDE:
                return f"at {self.where}, before {self.what}"
            case PointKind.END:
                return "when its handler has returned"
            case _:
                assert_never(self.kind)


# ── locations ────────────────────────────────────────────────────────────────────────────────────


@cache
def _is_user_code(filename: str) -> bool:
    if filename.startswith(("<", _FAULTLINE)):
        return False
    return not any(library and filename.startswith(library) for library in _LIBRARIES)


@cache
def _is_database_code(filename: str) -> bool:
    return filename.startswith(_FAULTLINE) or any(
        f"/{package}/" in filename for package in _DATABASE_PACKAGES
    )


def location(code: CodeType, line: int | None) -> str:
    return f"{Path(code.co_filename).name}:{line or code.co_firstlineno}"


def handler_code(handler: Any) -> CodeType:
    code: CodeType = inspect.unwrap(handler).__code__
    return code


@cache
def _is_library_setup(code: CodeType) -> bool:
    return any(
        code.co_name == name and code.co_filename.endswith(path) for path, name in _LIBRARY_SETUP
    )


def is_connection_setup(frame: FrameType | None) -> bool:
    """Tell whether a connection is being opened or checked.

    That is no step of the handler.
    """
    for _ in range(_MAX_DEPTH):
        if frame is None:
            return False
        if frame.f_code in _CONNECTION_SETUP or _is_library_setup(frame.f_code):
            return True
        if frame.f_code.co_name == "greenlet_spawn":  # SQLAlchemy's own stack waits in a greenlet
            inner = getattr(frame.f_locals.get("context"), "gr_frame", None)
            if inner is not None and is_connection_setup(inner):
                return True
        frame = frame.f_back
    return False


def calling_location(frame: FrameType | None, handler: CodeType) -> str:
    """Return the innermost line of user code on the stack, else the handler's line."""
    own: str | None = None
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        if _is_user_code(frame.f_code.co_filename):
            return location(frame.f_code, frame.f_lineno)
        if own is None and frame.f_code.co_filename == handler.co_filename:
            own = location(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return own or location(handler, None)


@dataclass(frozen=True, slots=True)
class Suspension:
    """Where a coroutine waits, and for what. One await may suspend many times."""

    where: str
    what: str
    awaited: Any

    @classmethod
    def of(cls, coroutine: Any, handler: CodeType) -> Suspension | None:
        """Return where the coroutine waits; None if it waits for the database."""
        found: tuple[FrameType, Any] | None = None
        for frame, awaited in _chain(coroutine):
            if _is_database_code(frame.f_code.co_filename) or _holds_database_code(frame):
                return None
            if _is_user_code(frame.f_code.co_filename) or frame.f_code is handler:
                found = frame, awaited
        if found is None:
            return None
        frame, awaited = found
        return cls(location(frame.f_code, frame.f_lineno), f"await {_name(awaited)}", awaited)


def _chain(coroutine: Any) -> Iterator[tuple[FrameType, Any]]:
    """Yield the visible frames of a suspended coroutine, the outermost first."""
    for _ in range(_MAX_DEPTH):
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            return
        awaited = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
        yield frame, awaited
        coroutine = awaited


def _holds_database_code(frame: FrameType) -> bool:
    """Detect `async with pool.connection()`, whose generator is in no frame."""
    generator = getattr(frame.f_locals.get("self"), "gen", None)
    code = getattr(generator, "ag_code", None)
    return code is not None and _is_database_code(code.co_filename)


def _name(awaited: Any) -> str:
    if asyncio.iscoroutine(awaited):
        return f"{getattr(awaited, '__qualname__', 'a coroutine')}()"
    return "a future"


# ── calls to the database ────────────────────────────────────────────────────────────────────────


def describe_call(generator: Generator[Any, Any, Any], *, is_idle: bool) -> str | None:
    """Describe the call that a generator of psycopg will send; None without an effect.

    No effect: a BEGIN, the end of a transaction where there is none, a setting of the connection object.
    """
    name = getattr(generator, "__name__", "a call")
    inside = getattr(generator, "gi_frame", None)
    if name == "_until" and inside is not None:  # with a limit: see faultline.postgres.answer_limit
        return describe_call(inside.f_locals["generator"], is_idle=is_idle)
    if _NOT_A_CALL.match(name) or (is_idle and name in ("_commit_gen", "_rollback_gen")):
        return None
    frame = getattr(generator, "gi_frame", None)
    given = frame.f_locals if frame is not None else {}
    match name:
        case "_exit_gen":
            return "COMMIT" if given.get("exc_val") is None else "ROLLBACK"
        case "_commit_gen":
            return "COMMIT"
        case "_rollback_gen":
            return "ROLLBACK"
    query = given.get("query", given.get("statement"))
    if query is None:
        return name.strip("_").removesuffix("_gen").replace("_", " ")
    return _shortened(query) or None  # a pool checks its connections with an empty query


def _shortened(query: Any) -> str:
    text = query.decode(errors="replace") if isinstance(query, bytes) else query
    if not isinstance(text, str):
        text = text.as_string(None)
    line = _SAVEPOINT.sub(r'"s\1"', " ".join(text.split()))
    if line.endswith("COMMIT"):  # with the ledger entry before it, in one message
        return "COMMIT"
    if match := _FUNCTION.search(line):
        return f"faultline.{match[1]}()"
    return line if len(line) <= _MAX_LABEL_LENGTH else f"{line[: _MAX_LABEL_LENGTH - 1]}…"


def describe_query(query: str, *, is_idle: bool) -> str | None:
    """Describe a statement; None for a BEGIN or the reset of a session."""
    text = _shortened(query).rstrip(";")
    begins = text.upper().startswith(("BEGIN", "START TRANSACTION"))
    resets = is_idle and text.upper().startswith(
        ("SELECT PG_ADVISORY_UNLOCK_ALL", "RESET", "ROLLBACK")
    )
    return None if begins or resets else text or None


class Fault(StrEnum):
    CRASH = "crash"
    """The worker dies: nothing after the point runs, its sessions end, and another takes over."""

    PAUSE = "pause"
    """The worker stops. Its lease expires, another takes over and finishes; then it resumes."""

    SUPERSEDE = "supersede"
    """Another worker takes the job over and has not finished; this one continues, unaware."""

    PARTITION = "partition"
    """The worker loses its database connections and continues until it ends or fences itself."""

    LOST_ANSWER = "lost_answer"
    """PostgreSQL has ended the transaction, but its reply is lost."""


ALL_FAULTS = tuple(Fault)
