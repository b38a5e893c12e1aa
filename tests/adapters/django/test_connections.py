"""Connections of Django on a worker's threads, which live as long as the worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import faultline
from faultline import JobState
from tests.adapters.django.conftest import Shop
from tests.running import work_off


@pytest.fixture
def kept_connections(shop: Shop) -> Iterator[list[psycopg.Connection[Any]]]:
    """Connections that Django keeps between attempts, as with CONN_MAX_AGE=None.

    The list takes those that a worker's threads keep. They are closed after the test.
    """
    from django.db import connections

    settings = connections.settings["default"]
    settings["CONN_MAX_AGE"] = None
    connections["default"].close()
    opened: list[psycopg.Connection[Any]] = []
    yield opened
    settings["CONN_MAX_AGE"] = 0
    for conn in opened:
        conn.close()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_connection_that_the_server_has_ended_fails_one_job_only(
    shop: Shop, kept_connections: list[psycopg.Connection[Any]], kind: str
) -> None:
    """The worker has one thread: without the hook every later job on it would fail."""
    from asgiref.sync import sync_to_async
    from django.db import connection

    sessions: list[int] = []

    def use_the_orm(invoice: int) -> None:
        shop.models.Payment.objects.create(invoice=invoice)
        kept_connections.append(connection.connection)
        sessions.append(connection.connection.info.backend_pid)
        if invoice == 2 and sessions.count(sessions[-1]) == 2:
            with psycopg.connect(shop.url, autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(%s, 10000)", [sessions[-1]])
            shop.models.Payment.objects.count()  # fails: the connection is broken from here on

    def plain(job: faultline.Job, invoice: int) -> None:
        use_the_orm(invoice)

    async def on_loop(job: faultline.Job, invoice: int) -> None:
        await sync_to_async(use_the_orm)(invoice)

    handler: Any = plain if kind == "plain" else on_loop
    task = shop.app.task(name="shop.killed", max_attempts=1)(handler)
    try:
        jobs = [task.enqueue(invoice=invoice).job_id for invoice in (1, 2, 3, 4)]
        work_off(shop.app, jobs[-1], concurrency=1, claim_ahead=0)
    finally:
        del shop.app._tasks["shop.killed"]
    states = [shop.app.get(job).state for job in jobs]
    assert [state is JobState.SUCCEEDED for state in states] == [True, False, True, True]
    assert sessions[0] == sessions[1], "the first two jobs shared a connection"
    assert sessions[2] not in sessions[:2]
    assert sessions[2] == sessions[3]


def test_a_block_that_a_handler_never_left_does_not_reach_the_next_job(
    shop: Shop, kept_connections: list[psycopg.Connection[Any]]
) -> None:
    """An interrupt by the worker can end a handler inside of Django's own code."""
    from django.db import connection, transaction

    def stuck(job: faultline.Job, invoice: int) -> None:
        if invoice == 1:
            transaction.atomic().__enter__()
        shop.models.Payment.objects.create(invoice=invoice)
        kept_connections.append(connection.connection)

    task = shop.app.task(name="shop.stuck", max_attempts=1)(stuck)
    try:
        jobs = [task.enqueue(invoice=invoice).job_id for invoice in (1, 2)]
        work_off(shop.app, jobs[-1], concurrency=1, claim_ahead=0)
    finally:
        del shop.app._tasks["shop.stuck"]
    assert shop.pays(2)


@pytest.mark.parametrize("checks", [True, False])
def test_a_health_check_replaces_a_connection_that_ended_while_it_was_idle(
    shop: Shop, kept_connections: list[psycopg.Connection[Any]], checks: bool
) -> None:
    from django.db import connection, connections

    def end_idle(invoice: int) -> None:
        if invoice == 2:  # does not use the ORM: ends what the first job's connection was
            with psycopg.connect(shop.url, autocommit=True) as admin:
                session = kept_connections[0].info.backend_pid
                admin.execute("SELECT pg_terminate_backend(%s, 10000)", [session])
            return
        shop.models.Payment.objects.create(invoice=invoice)
        kept_connections.append(connection.connection)

    settings = connections.settings["default"]
    settings["CONN_HEALTH_CHECKS"] = checks
    task = shop.app.task(name="shop.idle", max_attempts=1)(
        lambda job, invoice: end_idle(invoice)  # in the worker's one thread
    )
    try:
        jobs = [task.enqueue(invoice=invoice).job_id for invoice in (1, 2, 3)]
        work_off(shop.app, jobs[-1], concurrency=1, claim_ahead=0)
    finally:
        settings["CONN_HEALTH_CHECKS"] = False
        del shop.app._tasks["shop.idle"]
    assert (shop.app.get(jobs[2]).state is JobState.SUCCEEDED) == checks
    assert shop.pays(*((1, 3) if checks else (1,)))
