"""Chancy: jobs claimed for free slots, their outcomes written in batches."""

import logging
import sys
from pathlib import Path
from typing import Any

import psycopg_pool
from chancy import Chancy, Job, Queue, QueuedJob, Worker

sys.path.append(str(Path(__file__).parents[1]))
import roles

FLUSH_SECONDS = 0.1

effects: psycopg_pool.AsyncConnectionPool


async def noop(**payload: Any) -> None:
    roles.note_start(payload)


async def stamp(**payload: Any) -> None:
    roles.note_start(payload)


async def write(**payload: Any) -> None:
    roles.note_start(payload)
    async with effects.connection() as connection:
        await connection.execute("INSERT INTO bench_effects (n) VALUES (%s)", [payload["n"]])


async def flaky(*, job: QueuedJob, **payload: Any) -> None:
    roles.note_start(payload)
    if roles.is_flaky(payload) and job.attempts == 0:
        raise RuntimeError("the first attempt of a flaky job fails")


def make_app(url: str) -> Chancy:
    return Chancy(url, min_connection_pool_size=4, log=logging.getLogger("quiet"))


async def prepare(url: str) -> None:
    async with make_app(url) as app:
        await app.migrate()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    async with make_app(url) as app:
        await app.get_all_queues()

        def make_job(payload: roles.Payload) -> Job:
            # The worker runs this same file as its main module.
            return Job(func=f"__main__.{asked.task}", kwargs=payload, max_attempts=3)

        async def push_batch(batch: list[roles.Payload]) -> None:
            async for _ in app.push_many(
                [make_job(payload) for payload in batch], batch_size=len(batch)
            ):
                pass

        await roles.send(asked, one=lambda payload: app.push(make_job(payload)), many=push_batch)


async def work(url: str, concurrency: int) -> None:
    global effects
    effects = psycopg_pool.AsyncConnectionPool(
        url,
        min_size=roles.WRITE_CONNECTIONS,
        max_size=roles.WRITE_CONNECTIONS,
        open=False,
        kwargs={"autocommit": True},
    )
    async with effects, make_app(url) as app:
        await app.declare(
            Queue(
                "default",
                concurrency=concurrency,
                executor=Chancy.Executor.Async,
                polling_interval=1,
                eager_polling=True,
            ),
            upsert=True,
        )
        worker = Worker(app)
        worker.send_outgoing_interval = FLUSH_SECONDS
        async with worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    roles.main(prepare=prepare, enqueue=enqueue, work=work)
