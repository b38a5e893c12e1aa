"""A statement: the SQL, its parameters and how to read its rows, as one value."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """One round trip: what to send, and how to read the rows that come back.

    A statement is the same value for a thread and for an event loop, so none is written twice.
    """

    sql: LiteralString
    params: tuple[Any, ...]
    read: Callable[[list[Row]], T]


# Several statements that need each other's results. A generator yields them, is sent each result and
# returns what it has read; a thread (`run_reads`) or an event loop sends them.
Reads = Generator[Statement[Any], Any, T]


def result_of(statement: Statement[T]) -> Reads[T]:
    """Yield one statement, for `yield from`: its result keeps its type."""
    result: T = yield statement
    return result


def no_result(rows: list[Row]) -> None:
    """Read nothing: the statement is sent for what it does."""
