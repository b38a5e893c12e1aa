"""Situations for an inspector to look at, made with the protocol's own verbs."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from tests.protocol import steps
from tests.protocol.steps import Lease

Connection = psycopg.Connection[Any]


class Takeover(NamedTuple):
    stale: Lease
    current: Lease

    @property
    def job_id(self) -> UUID:
        return self.stale.job_id


def takeover(conn: Connection, **options: Any) -> Takeover:
    """The first worker's lease runs out, and the second gets the job."""
    stale = steps.claim_new(conn, worker="first", **options)
    return Takeover(stale, steps.take_over(conn, stale, worker="second"))


def refused_commit(conn: Connection, lease: Lease, *, worker: str = "first") -> None:
    """A late worker tries to commit, is refused, and says so, as the library does."""
    with steps.refused("FL001", reason="token_mismatch"):
        steps.commit(conn, lease)
    record = "SELECT faultline.record_rejection(%s, %s, %s, 'token_mismatch')"
    conn.execute(record, [lease.job_id, lease.token, worker])


def run_takeover(conn: Connection) -> Takeover:
    """A takeover, the commit of the second worker, and the refusal of the first."""
    story = takeover(conn)
    steps.commit(conn, story.current)
    refused_commit(conn, story.stale)
    return story


def register(
    conn: Connection, worker: str, *queues: str, holds_locks: bool = True, pid: int = 1
) -> None:
    """The session that registers keeps the worker alive."""
    conn.execute(
        "SELECT faultline.register_worker(%s, 'host', %s, %s, %s)",
        [worker, pid, list(queues or ("default",)), holds_locks],
    )
