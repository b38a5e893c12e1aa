"""A statement: the SQL, its parameters and how to read its rows, as one value."""

from __future__ import annotations

from collections.abc import Callable
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


def no_result(rows: list[Row]) -> None:
    """Read nothing: the statement is sent for what it does."""
