"""procrastinate: a PL/pgSQL queue with one claim and one completion per job."""

import sys
from pathlib import Path
from typing import Any

import orjson
import procrastinate
import psycopg
import psycopg_pool

sys.path.append(str(Path(__file__).parents[1]))
import roles

CONNECTIONS = 20

effects: psycopg_pool.AsyncConnectionPool
blueprint = procrastinate.Blueprint()


@blueprint.task(name="noop")
async def noop(**payload: Any) -> None:
    roles.note_start(payload)


@blueprint.task(name="stamp")
async def stamp(**payload: Any) -> None:
    roles.note_start(payload)


@blueprint.task(name="write")
async def write(**payload: Any) -> None:
    roles.note_start(payload)
    async with effects.connection() as connection:
        await connection.execute("INSERT INTO bench_effects (n) VALUES (%s)", [payload["n"]])


@blueprint.task(name="flaky", pass_context=True, retry=procrastinate.RetryStrategy(max_attempts=3))
async def flaky(context: procrastinate.JobContext, **payload: Any) -> None:
    roles.note_start(payload)
    if roles.is_flaky(payload) and context.job.attempts == 0:
        raise RuntimeError("the first attempt of a flaky job fails")


@blueprint.task(name="hold")
async def hold(**payload: Any) -> None:
    await roles.hold(payload)


async def retry_stalled_jobs(context: procrastinate.JobContext, timestamp: int) -> None:
    manager = context.app.job_manager
    for job in await manager.get_stalled_jobs():
        await manager.retry_job(job)


def make_app() -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(
        json_dumps=lambda value: orjson.dumps(value).decode(), json_loads=orjson.loads
    )
    app = procrastinate.App(connector=connector)
    app.add_tasks_from(blueprint, namespace="bench")
    if roles.WORKLOAD == "recovery":
        # It recovers jobs only where the user has asked for it. This is its documentation's way, but every
        # minute, the most often that five fields of cron can say: the example there has every ten minutes.
        task = app.task(queueing_lock="retry_stalled_jobs", pass_context=True)(retry_stalled_jobs)
        app.periodic(cron="* * * * *")(task)
    return app


def make_pool(url: str, size: int) -> psycopg_pool.AsyncConnectionPool:
    return psycopg_pool.AsyncConnectionPool(
        url, min_size=size, max_size=size, open=False, configure=commit_every_statement
    )


async def commit_every_statement(connection: psycopg.AsyncConnection) -> None:
    # Each of its verbs is one statement: BEGIN and COMMIT would only be two more round trips.
    await connection.set_autocommit(True)


async def prepare(url: str) -> None:
    async with make_pool(url, 1) as pool, make_app().open_async(pool) as app:
        await app.schema_manager.apply_schema_async()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    async with make_pool(url, 1) as pool, make_app().open_async(pool) as app:
        await pool.wait()
        await app.check_connection_async()
        deferrer = app.configure_task(f"bench:{asked.task}")
        await roles.send(
            asked,
            one=lambda payload: deferrer.defer_async(**payload),
            many=lambda batch: deferrer.batch_defer_async(*batch),
        )


async def work(url: str, concurrency: int) -> None:
    global effects
    effects = make_pool(url, roles.WRITE_CONNECTIONS)
    async with effects, make_pool(url, CONNECTIONS) as pool, make_app().open_async(pool) as app:
        await app.run_worker_async(concurrency=concurrency)


roles.main(prepare=prepare, enqueue=enqueue, work=work)
