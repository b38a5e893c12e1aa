"""Reads of the keys of limits: the fullest, the idle, and the arguments they are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from faultline.statements.statement import Statement

SHOWN_KEYS = 20
COUNT_LIMIT = 10_000  # places and waiting jobs of one limit are counted up to this number


@dataclass(frozen=True, slots=True)
class KeyUse:
    """How much of a limit one of its keys uses; at least so much, beyond COUNT_LIMIT."""

    limit_key: str
    running: int
    waiting: int
    waits_since: datetime | None  # of the first waiting job
    next_start_at: datetime | None  # under a rate, if that is later than now


@dataclass(frozen=True, slots=True)
class BoundArgument:
    """A task under a keyed limit, and its argument whose value is the key."""

    task: str
    argument: str
    fallback: str | None  # the key of a job without the argument; None: not limited


def fullest_keys(name: str, *, shown: int = SHOWN_KEYS) -> Statement[list[KeyUse]]:
    """The keys of a limit with the most waiting jobs, then with the most running ones."""
    return Statement(
        """
        WITH placed AS (
            SELECT p.limit_key FROM faultline.places AS p
            WHERE p.limit_key = %s
               OR (p.limit_key >= %s || '=' AND p.limit_key < %s || '>') LIMIT %s),
        lined AS (
            SELECT w.limit_key, w.due_at FROM faultline.waiting_jobs AS w
            WHERE w.limit_key = %s
               OR (w.limit_key >= %s || '=' AND w.limit_key < %s || '>') LIMIT %s),
        used AS (
            SELECT u.limit_key, sum(u.running) AS running, sum(u.waiting) AS waiting, min(u.since) AS since
            FROM (SELECT p.limit_key, 1 AS running, 0 AS waiting, NULL::timestamptz AS since
                  FROM placed AS p
                  UNION ALL SELECT l.limit_key, 0, 1, l.due_at FROM lined AS l) AS u
            GROUP BY u.limit_key ORDER BY waiting DESC, running DESC, u.limit_key LIMIT %s)
        SELECT u.limit_key, u.running::integer, u.waiting::integer, u.since,
            CASE WHEN s.next_start_at > clock_timestamp() THEN s.next_start_at END
        FROM used AS u LEFT JOIN faultline.limit_states AS s ON s.limit_key = u.limit_key
        ORDER BY u.waiting DESC, u.running DESC, u.limit_key
        """,
        (name, name, name, COUNT_LIMIT, name, name, name, COUNT_LIMIT, shown),
        lambda rows: [KeyUse(*row) for row in rows],
    )


def bound_arguments(name: str, *, limit: int = 1_000) -> Statement[list[BoundArgument]]:
    return Statement(
        """
        SELECT a.task, a.argument, a.fallback FROM faultline.limit_arguments AS a
        WHERE a.limit_name = %s ORDER BY a.task LIMIT %s
        """,
        (name, limit),
        lambda rows: [BoundArgument(*row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class IdleKeys:
    """Keys of each limit that could start jobs and start none, on one page of keys."""

    by_limit: dict[str, int]
    last_key: str | None  # of the page; None at the end


def idle_keys(after: str | None = None, *, page_size: int = 1_000) -> Statement[IdleKeys]:
    """Keys of each limit that have room and waiting jobs, and started none for 30 s.

    The reconciler makes such jobs due within seconds.
    """
    return Statement(
        "SELECT idle, last_key FROM faultline.idle_keys(%s, %s)",
        (after, page_size),
        lambda rows: IdleKeys(*rows[0]),
    )
