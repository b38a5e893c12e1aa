"""Concurrent submissions under one key, all sent before the first one inserts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from faultline.model import Enqueued
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement
from tests.processes.observed_database import HELD_BACK, ObservedDatabase
from tests.races.stepper import Connect

SUBMITTERS = 50
AT_INSERT = "TRIGGER held BEFORE INSERT ON faultline.jobs FOR EACH STATEMENT"
WAITING = (
    "FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def submission(amount: int = 1) -> Statement[Enqueued]:
    return protocol.enqueue(
        "charge",
        {"amount": amount},
        queue="default",
        priority=5,
        max_attempts=5,
        idempotency_key="invoice-42",
    )


def submit_at_once(database: ObservedDatabase, connect: Connect) -> list[Enqueued]:
    """Submit in fifty sessions; hold the inserts until all sessions wait for them."""
    sessions = [connect() for _ in range(SUBMITTERS)]

    def submit(session: psycopg.Connection[Any]) -> Enqueued:
        return run(session, submission())

    with ThreadPoolExecutor(SUBMITTERS) as threads:
        with database.held_back(AT_INSERT):
            answers = [threads.submit(submit, session) for session in sessions]
            database.wait_until(
                lambda: database.count(WAITING, [HELD_BACK]) == SUBMITTERS,
                "not every session waits",
            )
        return [answer.result(timeout=30) for answer in answers]
