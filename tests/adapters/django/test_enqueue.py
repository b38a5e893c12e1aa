"""Jobs that are enqueued in a transaction of Django exist if it commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from faultline import DatabaseUnavailable, InvalidInput, JobState
from tests.adapters.django.conftest import Configure, Shop


class Undo(Exception):
    """Rolls a block back."""


@contextlib.contextmanager
def undone(using: str = "default") -> Iterator[None]:
    """A block that is rolled back."""
    from django.db import transaction

    with contextlib.suppress(Undo), transaction.atomic(using=using):
        yield
        raise Undo


def stored(shop: Shop) -> int:
    with psycopg.connect(shop.url) as conn:
        [(count,)] = conn.execute("SELECT count(*) FROM faultline.jobs").fetchall()
    return int(count)


def enqueue(shop: Shop, how: str, conn: Any) -> Any:
    pay = shop.tasks.pay
    match how:
        case "plain":
            return pay.enqueue(invoice=1)
        case "many":
            return pay.enqueue_many([{"invoice": 1}])
        case "app":
            return shop.app.enqueue_many([pay.job(invoice=1)])
        case "given":
            return pay.options(conn=conn).enqueue(invoice=1)
        case "options":  # another SQL function, with parameters of more types
            return pay.options(delay=5, expires_in=60, unique=None).enqueue(invoice=1)


HOW = ["plain", "many", "app", "given", "options"]


@pytest.mark.parametrize("how", HOW)
def test_a_job_exists_if_the_block_commits(shop: Shop, how: str) -> None:
    from django.db import connection, transaction

    with transaction.atomic():
        enqueue(shop, how, connection)
        assert stored(shop) == 0
    assert stored(shop) == 1


@pytest.mark.parametrize("how", HOW)
def test_a_job_of_a_block_that_is_rolled_back_never_existed(shop: Shop, how: str) -> None:
    from django.db import connections

    with undone():
        enqueue(shop, how, connections["default"])
    assert stored(shop) == 0


def test_a_savepoint_that_is_rolled_back_takes_its_job_along(shop: Shop) -> None:
    from django.db import transaction

    with transaction.atomic():
        shop.tasks.pay.enqueue(invoice=1)
        with undone():
            shop.tasks.pay.enqueue(invoice=2)
    assert stored(shop) == 1


def test_outside_of_a_block_the_job_exists_at_once(shop: Shop) -> None:
    enqueued = shop.tasks.pay.enqueue(invoice=1)
    assert stored(shop) == 1
    assert not enqueued.existing
    record = shop.app.get(enqueued.job_id)
    assert (record.state, record.payload) == (JobState.QUEUED, {"invoice": 1})


def test_the_applications_reads_see_the_open_block(shop: Shop) -> None:
    from django.db import transaction

    with transaction.atomic():
        enqueued = shop.tasks.pay.enqueue(invoice=1)
        assert shop.app.get(enqueued.job_id).payload == {"invoice": 1}
        assert shop.app.cancel(enqueued.job_id) is JobState.FAILED
    assert shop.app.get(enqueued.job_id).failed_reason == "cancelled"


def test_a_setting_keeps_jobs_out_of_open_blocks(shop: Shop, configure: Configure) -> None:
    from django.db import connection

    configure(JOIN_TRANSACTIONS=False)
    with undone():
        shop.tasks.pay.enqueue(invoice=1)
        shop.tasks.pay.options(conn=connection).enqueue(invoice=2)
    assert stored(shop) == 1


def test_enqueue_async_runs_where_django_runs_the_orm(shop: Shop) -> None:
    """Under async_to_sync this is the caller's thread, and so its block."""
    from asgiref.sync import async_to_sync

    async def view() -> None:
        await shop.tasks.pay.enqueue_async(invoice=1)

    with undone():
        async_to_sync(view)()
    assert stored(shop) == 0
    async_to_sync(view)()
    assert stored(shop) == 1


def test_a_coroutine_enqueues_in_a_block_by_sync_to_async(shop: Shop) -> None:
    from asgiref.sync import async_to_sync, sync_to_async
    from django.db import transaction

    def order() -> None:
        with transaction.atomic():
            shop.tasks.pay.enqueue(invoice=1)
            raise Undo

    async def view() -> None:
        await shop.tasks.pay.enqueue_async(invoice=2)
        await sync_to_async(order)()

    with pytest.raises(Undo):
        async_to_sync(view)()
    assert stored(shop) == 1


def test_a_plain_enqueue_on_an_event_loop_uses_a_connection_of_faultline(shop: Shop) -> None:
    """Django refuses its connections there."""

    async def main() -> None:
        shop.tasks.pay.enqueue(invoice=1)

    asyncio.run(main())
    assert stored(shop) == 1


def test_a_lost_connection_is_replaced_by_the_next_call(shop: Shop) -> None:
    from django.db import connection

    with psycopg.connect(shop.url, autocommit=True) as admin:
        connection.ensure_connection()
        backend = connection.connection.info.backend_pid
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", [backend])
    with pytest.raises(DatabaseUnavailable):
        shop.tasks.pay.enqueue(invoice=1)
    shop.tasks.pay.enqueue(invoice=2)
    assert stored(shop) == 1


@pytest.mark.parametrize(
    ("conn", "problem"),
    [("model", "is no connection of Django"), ("notes", "is sqlite, not PostgreSQL")],
)
def test_what_is_no_connection_to_postgresql_is_refused(
    shop: Shop, conn: str, problem: str
) -> None:
    from django.db import connections

    given = shop.models.Payment() if conn == "model" else connections[conn]
    with pytest.raises(InvalidInput, match="is no connection" if conn == "model" else problem):
        shop.tasks.pay.options(conn=given).enqueue(invoice=1)


def test_a_connection_of_another_thread_is_refused(shop: Shop) -> None:
    import threading

    from django.db import connections

    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.append(connections["default"]))
    thread.start()
    thread.join()
    with pytest.raises(InvalidInput, match="another thread's connection"):
        shop.tasks.pay.options(conn=others[0]).enqueue(invoice=1)


def test_jobs_of_the_second_database_join_its_blocks_alone(shop: Shop, archive_url: str) -> None:

    with undone("archive"):
        shop.tasks.archive.enqueue(invoice=1)
        shop.tasks.pay.enqueue(invoice=1)  # of the default database, in no block
    assert stored(shop) == 1
    with psycopg.connect(archive_url) as conn:
        assert conn.execute("SELECT count(*) FROM faultline.jobs").fetchall() == [(0,)]
    shop.tasks.archive.app.close()
