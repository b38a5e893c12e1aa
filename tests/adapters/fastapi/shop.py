"""A FastAPI application with a worker, an API and a dashboard."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
from fastapi import Cookie, Depends, FastAPI, HTTPException
from starlette.applications import Starlette

import faultline
from faultline.adapters.fastapi import (
    Caller,
    Enqueuer,
    dashboard,
    enqueuer,
    producer_api,
    worker_lifespan,
)
from tests.waiting import idle

queue = faultline.Faultline()
without_tasks = faultline.Faultline()
story: list[str] = []


@queue.on_startup
def say_up() -> None:
    print("worker_up", flush=True)


@queue.on_shutdown
def say_down() -> None:
    print("worker_down", flush=True)


@queue.task(name="shop.charge")
async def charge(job: faultline.Job, invoice: int) -> None:
    story.append(f"charges {invoice}")
    async with job.transaction() as tx:
        await tx.execute("INSERT INTO effects VALUES (%s)", [f"invoice {invoice}"])


@queue.task(name="shop.linger")
async def linger(job: faultline.Job, seconds: float) -> None:
    async with job.fenced() as tx:
        await tx.execute("INSERT INTO effects VALUES ('lingers')")
    await idle(seconds)


@asynccontextmanager
async def own_lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
    print("opened", flush=True)
    yield {"greeting": "hello"}
    print("closed", flush=True)


async def connection() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as conn:
        yield conn


def signed_in(user: Annotated[str | None, Cookie()] = None) -> str:
    if user is None:
        raise HTTPException(401, "log in first")
    return user


def caller(user: Annotated[str, Depends(signed_in)]) -> Caller:
    return Caller(user, {"enqueue", "read", "operate"} if user == "ada" else {"read"})


Connection = Annotated[psycopg.AsyncConnection[Any], Depends(connection, scope="function")]
enqueue_jobs = enqueuer(queue)
enqueue_on_connection = enqueuer(queue, conn=Connection)
Enqueue = Annotated[Enqueuer, Depends(enqueue_jobs)]
EnqueueOnConnection = Annotated[Enqueuer, Depends(enqueue_on_connection)]


def make_shop() -> FastAPI:
    shop = FastAPI(
        lifespan=worker_lifespan(queue, drain_seconds=2, concurrency=5, lifespan=own_lifespan)
    )

    @shop.post("/charge/{invoice}")
    async def charge_it(invoice: int, enqueue: Enqueue) -> str:
        return str((await enqueue(charge, invoice=invoice)).job_id)

    @shop.post("/orders/{invoice}")
    async def order(
        invoice: int, fails: bool, conn: Connection, enqueue: EnqueueOnConnection
    ) -> str:
        await conn.execute("INSERT INTO effects VALUES (%s)", [f"order {invoice}"])
        found = await enqueue(charge.options(idempotency_key=f"{invoice}"), invoice=invoice)
        if fails:
            raise HTTPException(409, "sold out")
        return str(found.job_id)

    shop.mount("/queue", producer_api(queue, access=caller))
    shop.mount("/keys", producer_api(queue))
    shop.mount("/faultline", dashboard(queue, access=caller))
    return shop


shop = make_shop()
idle_shop = FastAPI(lifespan=worker_lifespan(without_tasks))
plain = Starlette(lifespan=worker_lifespan(queue, lifespan=own_lifespan))
plain.mount("/faultline", dashboard(queue, access=caller))
