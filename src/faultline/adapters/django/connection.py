"""Runs Faultline's statements on a connection of Django, in its transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import orjson
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from faultline.adapters.django.configuration import read_configuration
from faultline.errors import InvalidInput
from faultline.postgres.errors import translated_library_errors
from faultline.postgres.sessions import sever
from faultline.statements.statement import Statement
from faultline.user_connections import SyncUserConnection, outside_transaction

T = TypeVar("T")

# The database of the application whose job runs here, set around each attempt.
alias_of_attempt: ContextVar[str | None] = ContextVar("faultline_django_alias", default=None)

_JSON = (114, 3802)  # the types json and jsonb, which Django leaves as text


class DjangoConnection(SyncUserConnection):
    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self._wrapper = wrapper

    @property
    def in_transaction(self) -> bool:
        if self._wrapper.atomic_blocks:
            return bool(self.own_blocks)
        return not self._wrapper.get_autocommit()

    @property
    def own_blocks(self) -> list[Any]:
        """The open blocks, other than those that Django's TestCase opened."""
        blocks: list[Any] = self._wrapper.atomic_blocks
        return [block for block in blocks if not block._from_testcase]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with transaction.atomic(using=self._wrapper.alias, durable=not self.in_transaction):
            yield self._wrapper

    def run(self, statement: Statement[T]) -> T:
        with translated_library_errors(), self._wrapper.cursor() as cursor:
            cursor.execute(statement.sql, statement.params)
            columns = cursor.description or []
            rows = cursor.fetchall() if columns else []
        texts = [number for number, column in enumerate(columns) if column[1] in _JSON]
        return statement.read([_parsed(row, texts) for row in rows] if texts else rows)

    def require_transaction(self, what: str) -> None:
        if not self._wrapper.in_atomic_block and self._wrapper.get_autocommit():
            raise outside_transaction(what, "with transaction.atomic():")

    def sever(self) -> None:
        opened = self._wrapper.connection
        if opened is not None:
            with contextlib.suppress(Exception):  # psycopg2 has no socket of a closed connection
                sever(opened)


def _parsed(row: tuple[Any, ...], texts: list[int]) -> tuple[Any, ...]:
    """The row with JSON as values, as psycopg reads it."""
    values = list(row)
    for number in texts:
        if isinstance(values[number], str):
            values[number] = orjson.loads(values[number])
    return tuple(values)


def wrapper_of(conn: object) -> BaseDatabaseWrapper:
    """This thread's connection that `conn` is; InvalidInput if it is none."""
    if isinstance(conn, ConnectionProxy):
        conn = connections[conn.alias]
    if not isinstance(conn, BaseDatabaseWrapper):
        raise InvalidInput(
            f"conn is a {type(conn).__name__}, which is no connection of Django",
            hint='pass django.db.connection or connections["alias"]',
        )
    if conn.vendor != "postgresql":
        raise InvalidInput(f"the database {conn.alias!r} is {conn.vendor}, not PostgreSQL")
    if connections[conn.alias] is not conn:
        raise InvalidInput(
            f"conn is another thread's connection to {conn.alias!r}",
            hint=f'use connections["{conn.alias}"] in the thread that needs it',
        )
    return conn


def replace_lost_connections() -> None:
    """Close this thread's connections that are broken or older than CONN_MAX_AGE.

    Django does it around requests. A connection on which the transaction of a TestCase is open is left alone.
    """
    for wrapper in connections.all(initialized_only=True):
        blocks: list[Any] = wrapper.atomic_blocks
        if any(block._from_testcase for block in blocks):
            continue
        if wrapper.in_atomic_block:  # the worker interrupted the handler while it left a block
            wrapper.in_atomic_block = wrapper.closed_in_transaction = False
            wrapper.close()
        else:
            wrapper.close_if_unusable_or_obsolete()


# A test's connection, while jobs run in the transaction of a TestCase.
wrap: ContextVar[type[DjangoConnection]] = ContextVar(
    "faultline_django_wrap", default=DjangoConnection
)


def user_connection(conn: object) -> SyncUserConnection:
    return wrap.get()(wrapper_of(conn))


def connection_of_attempt(using: str | None) -> BaseDatabaseWrapper:
    """The connection for `job.atomic(using)`."""
    return connections[using or alias_of_attempt.get() or read_configuration().database]
