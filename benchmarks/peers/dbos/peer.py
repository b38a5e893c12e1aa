"""DBOS: a job is a durable workflow on a queue that its process polls."""

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg_pool
import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig

sys.path.append(str(Path(__file__).parents[1]))
import roles

QUEUE = "bench"
VERSION = "bench"
POLLING_SECONDS = 0.02

effects: psycopg_pool.ConnectionPool


@DBOS.workflow(name="noop")
def noop(payload: roles.Payload) -> None:
    roles.note_start(payload)


@DBOS.workflow(name="stamp")
def stamp(payload: roles.Payload) -> None:
    roles.note_start(payload)


@DBOS.workflow(name="write")
def write(payload: roles.Payload) -> None:
    roles.note_start(payload)
    with effects.connection() as connection:
        connection.execute("INSERT INTO bench_effects (n) VALUES (%s)", [payload["n"]])


@DBOS.workflow(name="flaky")
def flaky(payload: roles.Payload) -> None:
    roles.note_start(payload)
    fail_once(payload)


# A workflow that raises has failed for good: what DBOS tries again is a step.
@DBOS.step(retries_allowed=True, max_attempts=3, interval_seconds=0.001)
def fail_once(payload: roles.Payload) -> None:
    if roles.is_flaky(payload) and DBOS.step_status.current_attempt == 0:
        raise RuntimeError("the first attempt of a flaky job fails")


def configuration(url: str, **options: Any) -> DBOSConfig:
    return DBOSConfig(
        name="bench",
        system_database_url=_for_sqlalchemy(url),
        application_version=VERSION,
        log_level="ERROR",
        **options,
    )


def prepare(url: str) -> None:
    DBOS(config=configuration(url))
    DBOS.launch()
    DBOS.destroy()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    engine = sqlalchemy.create_engine(_for_sqlalchemy(url))
    client = DBOSClient(system_database_engine=engine)
    options = {"workflow_name": asked.task, "queue_name": QUEUE, "app_version": VERSION}
    client.list_workflows(limit=1)

    def push_batch(batch: list[roles.Payload]) -> None:
        with engine.begin() as connection:
            for payload in batch:
                client.enqueue_in_transaction(connection, options, payload)

    await roles.send(asked, one=lambda payload: client.enqueue(options, payload), many=push_batch)
    client.destroy()


def work(url: str, concurrency: int) -> None:
    global effects
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    DBOS(config=configuration(url, sys_db_pool_size=concurrency, max_executor_threads=concurrency))
    DBOS.launch()
    with psycopg_pool.ConnectionPool(
        url,
        min_size=roles.WRITE_CONNECTIONS,
        max_size=roles.WRITE_CONNECTIONS,
        kwargs={"autocommit": True},
    ) as effects:
        DBOS.register_queue(QUEUE, polling_interval_sec=POLLING_SECONDS)
        stop.wait()
        DBOS.destroy()


def _for_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


roles.main(prepare=prepare, enqueue=enqueue, work=work)
