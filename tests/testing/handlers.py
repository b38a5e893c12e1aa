"""Correct and incorrect handlers as users write them; each pays one invoice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import psycopg

from faultline import DatabaseUnavailable, Faultline, Job, StaleLease, Task
from faultline.testing import Outside

INSERT = "INSERT INTO payments VALUES (%s, %s)"
ARGS = {"invoice": 42}
# Raised when the database is unreachable: by the begin and end of a block, and by a statement in it.
LOST = (DatabaseUnavailable, psycopg.OperationalError)

Make = Callable[[Faultline], Task[Any, Any]]


def paid_once(conn: psycopg.Connection[Any]) -> None:
    row = conn.execute("SELECT count(*) FROM payments").fetchone()
    assert row is not None
    assert row[0] == 1, f"invoice 42 was paid {row[0]} times"


# ── correct ──────────────────────────────────────────────────────────────────────────────────────


def in_a_transaction(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        await asyncio.sleep(0)  # a point that is no database call
        async with job.transaction() as tx:
            await tx.execute(INSERT, [invoice, job.token])

    return pay


def in_a_transaction_of_a_plain_handler(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    def pay(job: Job, invoice: int) -> None:
        with job.transaction() as tx:
            tx.execute(INSERT, [invoice, job.token])

    return pay


def in_one_message(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        await job.commit_with(INSERT, [invoice, job.token])

    return pay


def in_one_message_of_a_plain_handler(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    def pay(job: Job, invoice: int) -> None:
        job.commit_with(INSERT, [invoice, job.token])

    return pay


def on_its_own_connection_with_a_fenced_commit(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        async with await psycopg.AsyncConnection.connect(app.database_url) as conn:
            await conn.execute(INSERT, [invoice, job.token])
            await job.commit(conn)

    return pay


def in_fenced_steps(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    def pay(job: Job, invoice: int) -> None:
        with job.fenced() as tx:
            tx.execute("INSERT INTO steps VALUES ('checked') ON CONFLICT DO NOTHING")
        with job.transaction() as tx:
            tx.execute(INSERT, [invoice, job.token])

    return pay


def with_a_cleanup(bank: Outside) -> Make:
    def make(app: Faultline) -> Task[Any, Any]:
        @app.task(name="pay")
        async def pay(job: Job, invoice: int) -> None:
            try:
                await asyncio.sleep(0)  # the point at which a fault strikes
            finally:
                bank.call("clean up")

        return pay

    return make


def with_a_cleanup_in_a_plain_handler(bank: Outside) -> Make:
    def make(app: Faultline) -> Task[Any, Any]:
        @app.task(name="pay")
        def pay(job: Job, invoice: int) -> None:
            try:
                with job.fenced() as tx:
                    tx.execute("SELECT 1")
            finally:
                bank.call("clean up")

        return pay

    return make


def with_a_follow_up_under_a_key(app: Faultline) -> Task[Any, Any]:
    @app.task(name="thank")
    def thank(job: Job, invoice: int) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO steps VALUES ('thanked')")

    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        await thank.options(idempotency_key=job.effect_key).enqueue_async(invoice=invoice)
        thank.options(idempotency_key=job.effect_key).enqueue(invoice=invoice)

    return pay


# ── incorrect ────────────────────────────────────────────────────────────────────────────────────


def outside_of_the_fence(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        async with await psycopg.AsyncConnection.connect(app.database_url) as conn:
            await conn.execute(INSERT, [invoice, job.token])

    return pay


def after_swallowing_the_refusal(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    def pay(job: Job, invoice: int) -> None:
        try:
            with job.transaction() as tx:
                tx.execute(INSERT, [invoice, job.token])
        except StaleLease:
            with psycopg.connect(app.database_url) as conn:
                conn.execute(INSERT, [invoice, job.token])

    return pay


def with_two_commits(app: Faultline) -> Task[Any, Any]:
    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        async with job.fenced() as tx:
            await tx.execute(INSERT, [invoice, job.token])
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO steps VALUES ('told')")

    return pay


def by_a_call_without_a_key(bank: Outside) -> Make:
    def make(app: Faultline) -> Task[Any, Any]:
        @app.task(name="pay")
        def pay(job: Job, invoice: int) -> None:
            bank.call(f"charge {invoice}")

        return pay

    return make


def by_a_call_with_a_key(bank: Outside) -> Make:
    def make(app: Faultline) -> Task[Any, Any]:
        @app.task(name="pay")
        def pay(job: Job, invoice: int) -> None:
            bank.call(f"charge {invoice}", key=job.effect_key)

        return pay

    return make


# ── for the partition fault ──────────────────────────────────────────────────────────────────────


def that_ignores_a_lost_database(app: Faultline) -> Task[Any, Any]:
    """A handler that continues long without its database, unless its worker ends it."""

    @app.task(name="pay")
    async def pay(job: Job, invoice: int) -> None:
        with contextlib.suppress(*LOST):
            async with job.fenced() as tx:
                await tx.execute(INSERT + " ON CONFLICT DO NOTHING", [invoice, job.token])
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)

    return pay


def that_connects_again(app: Faultline) -> Task[Any, Any]:
    """An incorrect handler; but a disconnected worker cannot reconnect either."""

    @app.task(name="pay")
    def pay(job: Job, invoice: int) -> None:
        try:
            with job.transaction() as tx:
                tx.execute(INSERT, [invoice, job.token])
        except LOST:
            with psycopg.connect(app.database_url) as conn:
                conn.execute(INSERT, [invoice, job.token])

    return pay
