"""Awa: PostgreSQL, a Rust core under Python handlers, append-only storage."""

import asyncio
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import awa

sys.path.append(str(Path(__file__).parents[1]))
import roles

QUEUE = "bench"
CONNECTIONS = 30
# Read by its Rust core. One job a flush, and several flushers, else all of them would queue for one.
ONE_BY_ONE = {"AWA_COMPLETION_BATCH_SIZE": "1", "AWA_COMPLETION_SHARDS": "8"}


@dataclass
class Plain:
    n: int
    filler: str


@dataclass
class Stamped(Plain):
    sent_ns: int


def shape_of(task: str) -> type[Plain]:
    return Stamped if task == "stamp" else Plain


async def prepare(url: str) -> None:
    client = awa.AsyncClient(url)
    await client.migrate()
    # Else the first worker would do it, and COPY is refused until then.
    await client.install_queue_storage()
    await client.close()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    client = awa.AsyncClient(url)
    await client.queue_stats()
    shape = shape_of(asked.task)

    async def one(payload: roles.Payload) -> None:
        await client.insert(shape(**payload), kind=asked.task, queue=QUEUE)

    async def many(batch: list[roles.Payload]) -> None:
        jobs = [shape(**payload) for payload in batch]
        await client.enqueue_many_copy(jobs, kind=asked.task, queue=QUEUE)

    await roles.send(asked, one, many)
    await client.close()


async def work(url: str, concurrency: int) -> None:
    if roles.WORKLOAD == "write_each":
        os.environ.update(ONE_BY_ONE)
    client = awa.AsyncClient(url, max_connections=CONNECTIONS)

    async def begin(job: awa.Job) -> None:
        roles.note_start(asdict(job.args))

    async def write(job: awa.Job) -> None:
        roles.note_start(asdict(job.args))
        # Finishing the job is a transaction of Awa's own, later.
        async with await client.transaction() as transaction:
            await transaction.execute("INSERT INTO bench_effects (n) VALUES ($1)", job.args.n)

    async def flaky(job: awa.Job) -> awa.RetryAfter | None:
        payload = asdict(job.args)
        roles.note_start(payload)
        return awa.RetryAfter(0) if roles.is_flaky(payload) and job.attempt == 1 else None

    async def hold(job: awa.Job) -> None:
        await roles.hold(asdict(job.args))

    handlers = {"noop": begin, "stamp": begin, "write": write, "flaky": flaky, "hold": hold}
    for task, handler in handlers.items():
        client.task(shape_of(task), kind=task, queue=QUEUE)(handler)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    slots = {"max_workers": concurrency, "claim_batch_size": concurrency}
    await client.start([{"name": QUEUE, **slots}])
    await stopped.wait()
    await client.shutdown()


roles.main(prepare=prepare, enqueue=enqueue, work=work)
