"""SAQ on PostgreSQL: one claim fills the free slots; each job is updated alone."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson
import psycopg_pool
from saq import Queue, Worker
from saq.queue.postgres import PostgresQueue

sys.path.append(str(Path(__file__).parents[1]))
import roles

ENQUEUE_CONNECTIONS = 10


async def noop(context: dict[str, Any], **payload: Any) -> None:
    roles.note_start(payload)


async def stamp(context: dict[str, Any], **payload: Any) -> None:
    roles.note_start(payload)


async def write(context: dict[str, Any], **payload: Any) -> None:
    roles.note_start(payload)
    async with context["worker"].queue.pool.connection() as connection:
        await connection.execute("INSERT INTO bench_effects (n) VALUES (%s)", [payload["n"]])


async def flaky(context: dict[str, Any], **payload: Any) -> None:
    roles.note_start(payload)
    if roles.is_flaky(payload) and context["job"].attempts == 1:
        raise RuntimeError("the first attempt of a flaky job fails")


def make_queue(url: str, connections: int) -> tuple[psycopg_pool.AsyncConnectionPool, Queue]:
    pool = psycopg_pool.AsyncConnectionPool(
        url, min_size=connections, max_size=connections, open=False, kwargs={"autocommit": True}
    )
    return pool, PostgresQueue(pool=pool, dump=orjson.dumps, load=orjson.loads)


async def prepare(url: str) -> None:
    pool, queue = make_queue(url, 2)
    async with pool:
        await queue.connect()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    pool, queue = make_queue(url, ENQUEUE_CONNECTIONS)
    async with pool:
        await queue.connect()
        await queue.count("queued")

        def push(payload: roles.Payload) -> Any:
            return queue.enqueue(asked.task, retries=3, kwargs=payload)

        # It has no bulk call; many calls at once over a pool are the fastest way there is.
        await roles.send(
            asked,
            one=push,
            many=lambda batch: asyncio.gather(*[push(payload) for payload in batch]),
        )


async def work(url: str, concurrency: int) -> None:
    pool, queue = make_queue(url, roles.WRITE_CONNECTIONS)
    async with pool:
        await queue.connect()
        worker = Worker(queue, [noop, stamp, write, flaky], concurrency=concurrency)
        await worker.start()


roles.main(prepare=prepare, enqueue=enqueue, work=work)
