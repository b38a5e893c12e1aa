"""Statements of the leader election between reconcilers: advisory locks."""

from __future__ import annotations

from typing import NamedTuple

from faultline.statements.statement import Statement
from faultline.statements.workers import LOCK_CLASS

LEADER_KEY = 0  # the lock keys of workers start at 1
ACTING_LEADER_KEY = -1


class LeaderHeartbeat(NamedTuple):
    """The number of a leader's heartbeat, and that of the last one; 0: none."""

    number: int
    after: int


class LeaderSighting(NamedTuple):
    """The session that leads, as any account can see it."""

    pid: int
    heartbeat_key: int | None  # None before the first heartbeat
    is_at_work: bool  # in the middle of a statement, however long that takes
    # Its account may not use Faultline: any account of the database can take the lock.
    is_foreign_account: bool = False


def try_to_lead(*, silence_limit: str) -> Statement[tuple[bool, int]]:
    """Try to lead; returns whether it does, and how many workers are registered.

    The same statement sets the timeout after which the server ends the session of a silent leader.
    """
    return Statement(
        """
        SELECT CASE WHEN pg_try_advisory_lock(%s, %s)
            THEN set_config('idle_session_timeout', %s, false) IS NOT NULL ELSE false END,
            (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL)
        """,
        (LOCK_CLASS, LEADER_KEY, silence_limit),
        lambda rows: (bool(rows[0][0]), int(rows[0][1])),
    )


def try_to_act_as_leader(*, silence_limit: str) -> Statement[bool]:
    """Act as leader in place of a silent one. False if another session does."""
    return Statement(
        """
        SELECT CASE WHEN pg_try_advisory_lock(%s, %s)
            THEN set_config('idle_session_timeout', %s, false) IS NOT NULL ELSE false END
        """,
        (LOCK_CLASS, ACTING_LEADER_KEY, silence_limit),
        lambda rows: bool(rows[0][0]),
    )


def beat(number: int, *, after: int) -> Statement[bool]:
    """Send a heartbeat: replace the lock of the last one (0: none) by the next.

    The keys lie below those of workers and of the leader. False if another session holds the lock.
    """
    key, last = ACTING_LEADER_KEY - number, ACTING_LEADER_KEY - after
    return Statement(
        """
        SELECT CASE WHEN NOT pg_try_advisory_lock(%s, %s) THEN false
            WHEN %s THEN pg_advisory_unlock(%s, %s) ELSE true END
        """,
        (LOCK_CLASS, key, after > 0, LOCK_CLASS, last),
        lambda rows: bool(rows[0][0]),
    )


def leader_sighting() -> Statement[LeaderSighting | None]:
    """The session that leads. It is idle if its virtual transaction has no number."""
    return Statement(  # an objid above 2^31 is a negative key
        """
        SELECT l.pid, min(l.objid::int8) FILTER (WHERE l.objid::int8 > 2147483647),
            bool_or(l.virtualtransaction NOT LIKE '%%/0'),
            NOT coalesce(bool_or((SELECT has_schema_privilege(a.usesysid, 'faultline', 'USAGE')
                    FROM pg_stat_activity AS a WHERE a.pid = l.pid)), true)
        FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s
          AND l.objsubid = 2 AND l.database = (SELECT d.oid FROM pg_database AS d
            WHERE d.datname = current_database())
        GROUP BY l.pid HAVING bool_or(l.objid = %s)
        """,
        (LOCK_CLASS, LEADER_KEY),
        lambda rows: LeaderSighting(*rows[0]) if rows else None,
    )


def is_led() -> Statement[bool]:
    """Whether a reconciler leads in this database; one behind a pooler is not visible."""
    return Statement(
        """
        SELECT EXISTS (SELECT FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted
            AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.database =
            (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
        """,
        (LOCK_CLASS, LEADER_KEY),
        lambda rows: bool(rows[0][0]),
    )
