"""Celery with broker and results in Redis; results show which jobs are finished."""

import os
import sys
from pathlib import Path
from typing import Any

from celery import Celery, Task

sys.path.append(str(Path(__file__).parents[1]))
import roles


def flaky(task: Task, payload: roles.Payload) -> None:
    roles.note_start(payload)
    if roles.is_flaky(payload) and task.request.retries == 0:
        raise task.retry(countdown=0)


def application(url: str, **options: Any) -> Celery:
    app = Celery("bench", broker=url, **options)
    app.conf.worker_prefetch_multiplier = 128
    app.conf.broker_connection_retry_on_startup = True
    app.task(name="noop")(roles.note_start)
    app.task(name="stamp")(roles.note_start)
    app.task(name="flaky", bind=True)(flaky)
    return app


def prepare(url: str) -> None:
    """Redis has nothing to create."""


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    # A producer that does not wait for results needs no backend; with one it would subscribe to every job.
    app = application(url)
    task = app.tasks[asked.task]
    with app.producer_pool.acquire(block=True) as producer:
        producer.connection.default_channel.client.ping()

        def one(payload: roles.Payload) -> None:
            task.apply_async((payload,), producer=producer)

        def many(batch: list[roles.Payload]) -> None:
            for payload in batch:  # there is no bulk call
                one(payload)

        await roles.send(asked, one, many)


def work(url: str, concurrency: int) -> None:
    # A process for each core, as by default: more of them would only take turns.
    processes = min(concurrency, os.cpu_count() or 1)
    pool = ["--pool=prefork", f"--concurrency={processes}"]
    # Two workers of one name would disturb each other.
    manners = [f"--hostname=bench-{os.getpid()}@%h", "--loglevel=ERROR"]
    alone = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app = application(url, backend=url)
    app.worker_main(["--quiet", "worker", *pool, *manners, *alone])


roles.main(prepare=prepare, enqueue=enqueue, work=work)
