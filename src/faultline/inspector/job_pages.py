"""Pages of jobs, as values in the style of protocol.py: each read from an index in that index's order.

What no index knows, a task's name say, is looked for among a bounded number of jobs: such a page may hold
fewer than were asked for, or none, and still say where to go on. Nothing here writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, LiteralString, assert_never
from uuid import UUID

from faultline.inspector import cursor
from faultline.model import JobState
from faultline.statements.statement import Row, Statement

LOOKED_AT = 5_000  # jobs, for one page
LOOKED_AT_IN_EACH_QUEUE = 500
MAX_QUEUES = 1_000
ERROR_LENGTH = 500


@dataclass(frozen=True, slots=True)
class JobSummary:
    id: UUID
    task: str
    queue: str
    state: str
    priority: int
    attempts: int
    max_attempts: int
    token: int
    created_at: datetime
    next_run_at: datetime
    finished_at: datetime | None
    failed_reason: str | None
    last_error: str | None  # its beginning


@dataclass(frozen=True, slots=True)
class JobPage:
    jobs: list[JobSummary]
    next: str | None
    looked_at: int  # at most so many
    is_cut_short: bool  # it ended at the bound of jobs to look at, not because it was full
    last_at: datetime | None  # of the job that it ended at: when it was made, due or finished


@dataclass(frozen=True, slots=True)
class JobFilter:
    state: JobState | None = None
    queue: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """An index to read, and what of the filter it answers by itself."""

    name: str
    where: LiteralString
    params: tuple[Any, ...] = ()
    scan: LiteralString  # as the index has them
    by: LiteralString  # the same, down to the id
    moment: LiteralString = "NULL::timestamptz"
    key: tuple[str, ...]  # of queue, priority, moment and id, what it is ordered by
    behind: LiteralString  # the rows behind a key
    behind_key: tuple[str, ...]  # the parts of the key, as `behind` takes them
    leaves: tuple[str, ...]  # what of the filter is looked for job by job
    each: LiteralString = ""  # what it is read for, over and over


_KEY_TYPES: dict[str, type] = {"queue": str, "priority": int, "moment": datetime, "id": UUID}

_NEWEST = _Order(
    name="newest",
    where="true",
    scan="j.id DESC",  # ids begin with the time
    by="j.id DESC",
    key=("id",),
    behind=" AND j.id < %s",
    behind_key=("id",),
    leaves=("state", "queue", "task"),
)
_ENDING_FIRST = _Order(
    name="running",
    where="j.state = 'running'",
    scan="j.lease_expires_at",
    by="j.lease_expires_at, j.id",
    moment="j.lease_expires_at",
    key=("moment", "id"),
    behind=" AND j.lease_expires_at >= %s AND (j.lease_expires_at, j.id) > (%s, %s)",
    behind_key=("moment", "moment", "id"),
    leaves=("queue", "task"),
)
_AS_CLAIMED = _Order(
    name="queued",
    where="j.state = 'queued'",
    scan="j.queue, j.priority, j.next_run_at, j.id",
    by="j.queue, j.priority, j.next_run_at, j.id",
    moment="j.next_run_at",
    key=("queue", "priority", "moment", "id"),
    behind=" AND (j.queue, j.priority, j.next_run_at, j.id) > (%s, %s, %s, %s)",
    behind_key=("queue", "priority", "moment", "id"),
    leaves=("task",),
)
# Of each queue as many as the page may need, merged.
_FAILED_LAST = _Order(
    name="failed",
    where="j.state = 'failed' AND j.queue = f.queue",
    scan="j.finished_at DESC",
    by="j.finished_at DESC, j.id DESC",
    moment="j.finished_at",
    key=("moment", "id"),
    behind=" AND j.finished_at <= %s AND (j.finished_at, j.id) < (%s, %s)",
    behind_key=("moment", "moment", "id"),
    leaves=("task",),
    each="failing AS f CROSS JOIN LATERAL ",
)


def _order(wanted: JobFilter) -> _Order:
    match wanted.state:
        case JobState.RUNNING:
            return _ENDING_FIRST
        case JobState.SUCCEEDED | None:
            return _NEWEST
        case JobState.QUEUED:
            where: LiteralString = "j.state = 'queued' AND j.queue = %s"
            every = _AS_CLAIMED
        case JobState.FAILED:
            where = "j.state = 'failed' AND j.queue = %s"
            every = _FAILED_LAST
        case _:
            assert_never(wanted.state)
    if wanted.queue is None:
        return every
    return replace(every, where=where, params=(wanted.queue,), each="")


_TESTS: dict[str, LiteralString] = {
    "state": " AND j.state = %s",
    "queue": " AND j.queue = %s",
    "task": " AND j.task = %s",
}


# From one queue's name to the next, however many failures lie between. Not run when nothing asks for it.
_FAILING: LiteralString = (
    "WITH RECURSIVE names (queue) AS ("
    "  (SELECT q.queue::text FROM faultline.jobs AS q WHERE q.state = 'failed'"
    "   ORDER BY q.queue LIMIT 1)"
    "  UNION ALL SELECT (SELECT q.queue FROM faultline.jobs AS q WHERE q.state = 'failed'"
    "   AND q.queue > n.queue ORDER BY q.queue LIMIT 1) FROM names AS n WHERE n.queue IS NOT NULL),"
    " failing AS (SELECT queue FROM names WHERE queue IS NOT NULL LIMIT %s)"
)
_SEEN: LiteralString = (
    ", places AS (SELECT *, row_number() OVER () AS place FROM ordered),"
    " seen AS (SELECT * FROM places WHERE is_wanted OR place = %s ORDER BY place LIMIT %s)"
    " SELECT seen.place, seen.is_wanted, seen.queue, seen.priority, seen.moment, seen.id, j.*"
    " FROM seen LEFT JOIN LATERAL (SELECT s.id, s.task, s.queue, s.state, s.priority, s.attempts,"
    "  s.max_attempts, s.fencing_token, s.created_at, s.next_run_at, s.finished_at, s.failed_reason,"
    "  left(s.last_error, %s) FROM faultline.jobs AS s WHERE s.id = seen.id LIMIT 1) AS j"
    " ON seen.is_wanted ORDER BY seen.place"
)


def is_looked_for(wanted: JobFilter) -> bool:
    """Whether part of the filter is in no index, so that jobs are looked at one by one."""
    return any(getattr(wanted, name) is not None for name in _order(wanted).leaves)


def page(
    wanted: JobFilter, *, limit: int, after: str | None = None, look_at: int = LOOKED_AT
) -> Statement[JobPage]:
    """`look_at` is how many jobs it looks at, at most, for what no index knows."""
    order = _order(wanted)
    test: LiteralString = "true"
    test_params: tuple[Any, ...] = ()
    for name in order.leaves:
        if (value := getattr(wanted, name)) is not None:
            test += _TESTS[name]
            test_params += (value,)
    behind: LiteralString = ""
    behind_params: tuple[Any, ...] = ()
    if after is not None:
        types = [_KEY_TYPES[part] for part in order.key]
        key = dict(zip(order.key, cursor.decode(after, order.name, types), strict=True))
        behind, behind_params = order.behind, tuple(key[part] for part in order.behind_key)
    if order.each:
        look_at = min(look_at, LOOKED_AT_IN_EACH_QUEUE)
    looked_at = look_at if test_params else limit + 1
    # An index may end before the id does. With all that equal the last, what it gives can be put in order
    # without reading on.
    return Statement(
        f"{_FAILING}, ordered AS MATERIALIZED ("  # noqa: S608 - of literals, all in this file
        f" SELECT j.id, j.queue, j.priority, {order.moment} AS moment, {test} AS is_wanted"
        f" FROM {order.each}(SELECT j.* FROM faultline.jobs AS j WHERE {order.where}{behind}"
        f"  ORDER BY {order.scan} FETCH FIRST %s ROWS WITH TIES) AS j"
        f" ORDER BY {order.by} LIMIT %s){_SEEN}",
        (
            *(MAX_QUEUES, *test_params, *order.params, *behind_params),
            *(looked_at, looked_at, looked_at, limit + 1, ERROR_LENGTH),
        ),
        lambda rows: _read_page(rows, order, limit, looked_at),
    )


def _read_page(rows: list[Row], order: _Order, limit: int, looked_at: int) -> JobPage:
    wanted = [row for row in rows if row[1]]
    last = None
    is_full = len(wanted) > limit
    if is_full:
        last = wanted[limit - 1]
    elif rows and rows[-1][0] == looked_at:  # there is more to look at
        last = rows[-1]
    following, last_at = None, None
    if last is not None:
        parts = dict(zip(_KEY_TYPES, last[2:6], strict=True))
        following = cursor.encode(order.name, [parts[part] for part in order.key])
        last_at = parts["moment"] or _made_at(parts["id"])
    return JobPage(
        [JobSummary(*row[6:]) for row in wanted[:limit]],
        following,
        rows[-1][0] if rows else 0,
        last is not None and not is_full,
        last_at,
    )


def _made_at(job_id: UUID) -> datetime:
    """Ids begin with the time, in milliseconds."""
    return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)
