"""Absurd: PostgreSQL; its protocol is SQL functions, and the SDK a thin caller of them."""

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
CLIENTS = 5
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


def client_at(url: str, pool: AsyncConnectionPool) -> AsyncAbsurd:
    app = AsyncAbsurd(url, queue_name=QUEUE)

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
    return app


async def work(url: str, concurrency: int) -> None:
    autocommit = {"autocommit": True}
    async with AsyncConnectionPool(
        url, min_size=1, max_size=concurrency, kwargs=autocommit
    ) as pool:
        # A client has one connection, for which its jobs queue up: several of them share the work.
        clients = [client_at(url, pool) for _ in range(min(CLIENTS, concurrency))]

        def stop() -> None:
            for client in clients:
                client.stop_worker()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        options = {"concurrency": concurrency // len(clients), "poll_interval": POLL_SECONDS}
        # All are connected before one starts: a client that is told to stop while it connects never does.
        for client in clients:
            await client.list_queues()
        await asyncio.gather(*(client.start_worker(**options) for client in clients))


roles.main(prepare=prepare, enqueue=enqueue, work=work)
