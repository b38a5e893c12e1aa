"""PgQueuer: jobs claimed and logged in batches over asyncpg."""

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path

import asyncpg
import orjson
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job
from pgqueuer.queries import Queries

sys.path.append(str(Path(__file__).parents[1]))
import roles

# Of claims and of completions alike: there is one setting for both. Recovery is measured at its default.
BATCH_SIZES = {"write_each": 1, "recovery": 10}
BATCH_SIZE = BATCH_SIZES.get(roles.WORKLOAD, 100)


def make_worker(driver: AsyncpgPoolDriver, effects: asyncpg.Pool) -> PgQueuer:
    worker = PgQueuer(driver)

    @worker.entrypoint("noop")
    @worker.entrypoint("stamp")
    async def note(job: Job) -> None:
        roles.note_start(orjson.loads(job.payload))

    @worker.entrypoint("write")
    async def write(job: Job) -> None:
        payload = orjson.loads(job.payload)
        roles.note_start(payload)
        await effects.execute("INSERT INTO bench_effects (n) VALUES ($1)", payload["n"])

    @worker.entrypoint("hold")
    async def hold(job: Job) -> None:
        await roles.hold(orjson.loads(job.payload))

    @worker.entrypoint("flaky")
    async def flaky(job: Job) -> None:
        payload = orjson.loads(job.payload)
        roles.note_start(payload)
        if roles.is_flaky(payload) and job.attempts == 0:
            raise RetryRequested(
                delay=timedelta(0), reason="the first attempt of a flaky job fails"
            )

    return worker


async def prepare(url: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        await Queries(AsyncpgPoolDriver(pool)).install()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.queue_size()
        await roles.send(
            asked,
            one=lambda payload: queries.enqueue(asked.task, orjson.dumps(payload)),
            many=lambda batch: queries.enqueue(
                [asked.task] * len(batch),
                [orjson.dumps(payload) for payload in batch],
                [0] * len(batch),
            ),
        )


async def work(url: str, concurrency: int) -> None:
    async with (
        asyncpg.create_pool(url, min_size=4, max_size=4) as pool,
        asyncpg.create_pool(
            url, min_size=roles.WRITE_CONNECTIONS, max_size=roles.WRITE_CONNECTIONS
        ) as effects,
    ):
        worker = make_worker(AsyncpgPoolDriver(pool), effects)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
        await worker.run(batch_size=BATCH_SIZE)


asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
roles.main(prepare=prepare, enqueue=enqueue, work=work)
