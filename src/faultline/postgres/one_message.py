"""Sends a transaction of known statements as one message, and reads one answer.

PostgreSQL runs the statements of a message one after the other, and the first error ends it. The parameters
are written into the text by the driver, on the client's side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg

from faultline.errors import InvalidInput
from faultline.postgres.errors import explain_error, translated_errors
from faultline.postgres.handler_connection import left_behind
from faultline.postgres.sessions import AsyncConnection, Connection, together
from faultline.postgres.transaction_control import find_transaction_control
from faultline.statements.statement import Statement


class Write(NamedTuple):
    """A statement of the user's, with its parameters."""

    statement: Any
    params: Any = None


def send(
    conn: Connection,
    opening: Sequence[Statement[Any]],
    writes: Sequence[Write],
    closing: Sequence[Statement[Any]],
) -> None:
    with psycopg.ClientCursor(conn) as cursor:
        message = _message(cursor, opening, writes, closing)
        with _explained(conn), translated_errors():
            cursor.execute(message)


async def send_async(
    conn: AsyncConnection,
    opening: Sequence[Statement[Any]],
    writes: Sequence[Write],
    closing: Sequence[Statement[Any]],
) -> None:
    async with psycopg.AsyncClientCursor(conn) as cursor:
        message = _message(cursor, opening, writes, closing)
        with _explained(conn), translated_errors():
            await cursor.execute(message)


def _message(
    cursor: psycopg.ClientCursor[Any] | psycopg.AsyncClientCursor[Any],
    opening: Sequence[Statement[Any]],
    writes: Sequence[Write],
    closing: Sequence[Statement[Any]],
) -> bytes:
    parts = [cursor.mogrify(*together(opening))]
    for write in writes:
        part = cursor.mogrify(write.statement, write.params)
        _check(part)
        # A comment at the end of the user's statement ends with its line.
        parts.append(f"{part}\n")
    parts.append(cursor.mogrify(*together(closing)))
    return ";".join(parts).encode()


def _check(text: str) -> None:
    if found := find_transaction_control(text):
        raise InvalidInput(
            f"job.commit_with got {found}",
            hint="it begins and commits the transaction itself; give it the writes alone",
        )
    if left_behind(text):
        raise InvalidInput(
            "job.commit_with got a statement that leaves something behind in its session",
            hint="use job.transaction() for LISTEN, PREPARE and advisory locks of sessions",
        )


@contextlib.contextmanager
def _explained(conn: Connection | AsyncConnection) -> Iterator[None]:
    """Translate the error of a lost connection, and no error of a statement."""
    try:
        yield
    except psycopg.Error as error:
        if conn.closed or error.sqlstate is None:
            raise explain_error(error) from error
        raise


def was_refused(conn: Connection | AsyncConnection) -> bool:
    """Whether the server has answered with an error, so that nothing was committed."""
    status = conn.pgconn.transaction_status
    idle = (
        psycopg.pq.TransactionStatus.IDLE
    )  # the server could not read the message, and ran nothing
    return not conn.closed and status in (psycopg.pq.TransactionStatus.INERROR, idle)
