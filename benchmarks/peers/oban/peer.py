"""Oban for Python: one producer per queue claims for free slots."""

import asyncio
import signal
import sys
from pathlib import Path

import psycopg_pool
import uvloop
from oban import Job, Oban, worker
from oban.schema import install

sys.path.append(str(Path(__file__).parents[1]))
import roles

# A queue acknowledges all of its jobs that have ended in one transaction. To finish each on its own there
# are as many queues as slots, with one slot each.
ONE_BY_ONE = roles.WORKLOAD == "write_each"
QUEUES = 20 if ONE_BY_ONE else 1

effects: psycopg_pool.AsyncConnectionPool


@worker()
class Noop:
    async def process(self, job: Job) -> None:
        roles.note_start(job.args)


@worker()
class Stamp:
    async def process(self, job: Job) -> None:
        roles.note_start(job.args)


@worker()
class Write:
    async def process(self, job: Job) -> None:
        roles.note_start(job.args)
        async with effects.connection() as connection:
            await connection.execute("INSERT INTO bench_effects (n) VALUES (%s)", [job.args["n"]])


@worker()
class Flaky:
    async def process(self, job: Job) -> None:
        roles.note_start(job.args)
        if roles.is_flaky(job.args) and job.attempt == 1:
            raise RuntimeError("the first attempt of a flaky job fails")

    def backoff(self, job: Job) -> int:
        return 0


TASKS = {"noop": Noop, "stamp": Stamp, "write": Write, "flaky": Flaky}


def queue_of(payload: roles.Payload) -> str:
    return f"queue{payload['n'] % QUEUES}"


def make_pool(url: str, size: int) -> psycopg_pool.AsyncConnectionPool:
    return psycopg_pool.AsyncConnectionPool(
        url, min_size=size, max_size=size, open=False, kwargs={"autocommit": True}
    )


async def prepare(url: str) -> None:
    async with make_pool(url, 1) as pool:
        await install(pool)


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    task = TASKS[asked.task]

    def make_job(payload: roles.Payload) -> Job:
        return task.new(payload, queue=queue_of(payload))

    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=2, open=False) as pool:
        await pool.wait()
        client = Oban(pool=pool)
        await roles.send(
            asked,
            one=lambda payload: client.enqueue(make_job(payload)),
            many=lambda batch: client.enqueue_many([make_job(payload) for payload in batch]),
        )


async def work(url: str, concurrency: int) -> None:
    global effects
    effects = make_pool(url, roles.WRITE_CONNECTIONS)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    limits = {f"queue{number}": concurrency // QUEUES or 1 for number in range(QUEUES)}
    async with (
        effects,
        make_pool(url, QUEUES if ONE_BY_ONE else 4) as pool,
        Oban(pool=pool, queues=limits, stager={"interval": 0.1}),
    ):
        await stop.wait()


asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
roles.main(prepare=prepare, enqueue=enqueue, work=work)
