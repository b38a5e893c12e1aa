"""Databases with a given number of jobs, copied for each measurement."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import conninfo, sql

from benchmarks.servers import vacuum_and_checkpoint
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import epochs
from faultline_drills.servers.scratch_database import scratch_database

QUEUES = ("default", "second")
_PRIORITY = 5  # the default
_HIGHER_PRIORITY = 0
_LARGE = 200_000

# Ids rise with the number, like those of jobs enqueued one after another.
_WAITING: LiteralString = """
    INSERT INTO faultline.jobs (id, task, queue, priority, payload, next_run_at, created_at)
    SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(task)s,
           (%(queues)s::text[])[1 + n %% %(queue_count)s],
           CASE WHEN %(priorities)s = 1 THEN %(priority)s ELSE n / %(queue_count)s %% %(priorities)s END,
           jsonb_build_object('n', n), now() - interval '1 hour' + n * interval '1 microsecond', now()
    FROM generate_series(1, %(count)s) AS n
"""
# Every second job has a higher priority than the due jobs: a claim checks those first.
_FOR_LATER: LiteralString = """
    INSERT INTO faultline.jobs (id, task, priority, payload, next_run_at, created_at)
    SELECT ('01a00000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(task)s,
           CASE WHEN n %% 2 = 0 THEN %(higher)s ELSE %(priority)s END,
           jsonb_build_object('n', n), now() + interval '1 day' + n * interval '1 microsecond', now()
    FROM generate_series(1, %(count)s) AS n
"""
_FINISHED: LiteralString = """
    INSERT INTO faultline.jobs (
        id, task, payload, state, next_run_at, created_at, attempts, fencing_token, lease_id,
        lease_owner, lease_seconds, lease_expires_at, claimed_at, finished_at)
    SELECT id, %(task)s, jsonb_build_object('n', n), 'succeeded', moment, moment, 1, 1, id,
           'former worker', 15, moment + interval '15 seconds', moment, moment
    FROM (SELECT n, ('01800000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,
                 now() - interval '1 day' AS moment
          FROM generate_series(1, %(count)s) AS n) AS past
"""
_LEDGER: LiteralString = """
    INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, worker, committed_at)
    SELECT id, 1, id, 'former worker', now() - interval '1 day'
    FROM (SELECT ('01800000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id
          FROM generate_series(1, %(count)s) AS n) AS past
"""


@dataclass(frozen=True, kw_only=True)
class Population:
    """The number of jobs of each kind."""

    waiting: int
    later: int = 0
    finished: int = 0
    queues: int = 1
    priorities: int = 1
    task: str = "noop"

    @property
    def size(self) -> int:
        return self.waiting + self.later + self.finished

    @property
    def queue_names(self) -> tuple[str, ...]:
        return QUEUES[: self.queues]


class Templates:
    """Databases that are filled once per run and copied; dropped at its end."""

    def __init__(self, server_url: str, stack: ExitStack) -> None:
        self._server_url = server_url
        self._stack = stack
        self._made: dict[Population, str] = {}
        self._empty: str | None = None

    def database(self, population: Population) -> str:
        """Return the URL of the database with `population`; the first call creates it."""
        if population not in self._made:
            url = self._stack.enter_context(_copy_of(self._empty_database(), self._server_url))
            populate(url, population)
            self._made[population] = url
        return self._made[population]

    @contextmanager
    def copy(self, population: Population) -> Iterator[str]:
        """Yield the URL of a copy. The original must have no open sessions."""
        template, large = self.database(population), population.size > _LARGE
        with _copy_of(template, self._server_url, large=large) as url:
            yield url

    def _empty_database(self) -> str:
        if self._empty is None:
            self._empty = self._stack.enter_context(
                scratch_database(self._server_url, prefix="bench")
            )
            migrate(self._empty)
            with connect(self._empty, application_name="bench") as conn:
                run(conn, epochs.forget_database())  # it is only copied
        return self._empty


def populate(url: str, population: Population) -> None:
    """Fill the tables by inserts with triggers disabled, which needs a superuser.

    Afterwards the tables are vacuumed and analyzed, as autovacuum would do.
    """
    values = {
        "task": population.task,
        "queues": list(population.queue_names),
        "queue_count": population.queues,
        "priorities": population.priorities,
        "priority": _PRIORITY,
        "higher": _HIGHER_PRIORITY,
    }
    counts = (
        (_FINISHED, population.finished),
        (_LEDGER, population.finished),
        (_WAITING, population.waiting),
        (_FOR_LATER, population.later),
    )
    fills = [(statement, {**values, "count": count}) for statement, count in counts if count]
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        sessions = [stack.enter_context(connect(url, application_name="bench")) for _ in fills]
        try:
            filled = [
                threads.submit(_fill, session, *fill)
                for session, fill in zip(sessions, fills, strict=True)
            ]
            for each in filled:
                each.result()
        except BaseException:  # so that Ctrl-C does not wait for ten million rows
            for session in sessions:
                session.cancel()
            raise
    with connect(url, application_name="bench") as conn:
        vacuum_and_checkpoint(conn)


def _fill(conn: Connection, statement: LiteralString, values: Mapping[str, Any]) -> None:
    conn.execute("SET session_replication_role = replica")
    conn.execute(statement, values)


@contextmanager
def _copy_of(template_url: str, server_url: str, *, large: bool = False) -> Iterator[str]:
    name = f"bench_{secrets.token_hex(6)}"
    template = str(conninfo.conninfo_to_dict(template_url)["dbname"])
    with connect(server_url, application_name="faultline bench") as admin:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}{}").format(
            sql.Identifier(name),
            sql.Identifier(template),
            # The default strategy writes to the WAL: good for small databases, slow for large ones.
            sql.SQL(
                " STRATEGY file_copy" if large and admin.info.server_version >= 150_000 else ""
            ),
        )
        admin.execute(create)
    try:
        yield conninfo.make_conninfo(server_url, dbname=name)
    finally:
        with connect(server_url, application_name="faultline bench") as admin:
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            admin.execute(drop.format(sql.Identifier(name)))
