"""Absurd on PostgreSQL: its SDK calls SQL functions."""

import asyncio
import signal
import sys
from pathlib import Path

import psycopg
from absurd_sdk import AsyncAbsurd, AsyncTaskContext
from absurdctl import BUNDLED_SCHEMA_SQL
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

sys.path.append(str(Path(__file__).parents[1]))
import roles

QUEUE = "bench"
CLAIMED_AT_ONCE = 500
POLL_SECONDS = 0.02

# The SDK has no bulk call; the function behind its single one can be called for many jobs in a statement.
SPAWN_MANY = """
SELECT count(*)
  FROM jsonb_array_elements(%s) AS payload, absurd.spawn_task(%s, %s, payload)
"""


async def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(BUNDLED_SCHEMA_SQL.encode())
    app = AsyncAbsurd(url, queue_name=QUEUE)
    await app.create_queue()
    await app.close()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        app = AsyncAbsurd(conn, queue_name=QUEUE)
        await app.list_queues()

        async def one(payload: roles.Payload) -> None:
            await app.spawn(asked.task, payload, queue=QUEUE)

        async def many(batch: list[roles.Payload]) -> None:
            await conn.execute(SPAWN_MANY, [Jsonb(batch), QUEUE, asked.task])

        await roles.send(asked, one, many)


async def work(url: str, concurrency: int) -> None:
    app = AsyncAbsurd(url, queue_name=QUEUE)
    autocommit = {"autocommit": True}
    pool = AsyncConnectionPool(url, min_size=1, max_size=concurrency, open=False, kwargs=autocommit)

    async def begin(payload: roles.Payload, context: AsyncTaskContext) -> None:
        roles.note_start(payload)

    async def write(payload: roles.Payload, context: AsyncTaskContext) -> None:
        roles.note_start(payload)
        async with pool.connection() as conn:
            await conn.execute("INSERT INTO bench_effects (n) VALUES (%s)", [payload["n"]])

    async def flaky(payload: roles.Payload, context: AsyncTaskContext) -> None:
        roles.note_start(payload)
        # The context has no public name for the number of the attempt.
        if roles.is_flaky(payload) and context._task["attempt"] == 1:
            raise RuntimeError("fails at its first attempt")

    for task, handler in {"noop": begin, "stamp": begin, "write": write, "flaky": flaky}.items():
        app.register_task(task)(handler)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.stop_worker)
    async with pool:
        await app.start_worker(
            concurrency=concurrency, batch_size=CLAIMED_AT_ONCE, poll_interval=POLL_SECONDS
        )
    await app.close()


roles.main(prepare=prepare, enqueue=enqueue, work=work)
