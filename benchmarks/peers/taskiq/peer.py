"""taskiq: a Redis stream with acknowledgements, and results in Redis."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import uvloop
from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq.api import run_receiver_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

sys.path.append(str(Path(__file__).parents[1]))
import roles

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


async def begin(payload: dict[str, Any]) -> None:
    roles.note_start(payload)


async def flaky(payload: dict[str, Any], context: Annotated[Context, TaskiqDepends()]) -> None:
    roles.note_start(payload)
    if roles.is_flaky(payload) and "_retries" not in context.message.labels:
        raise RuntimeError("fails at its first attempt")


def broker_at(url: str) -> RedisStreamBroker:
    results: RedisAsyncResultBackend[None] = RedisAsyncResultBackend(
        url, prefix_str="result", serializer=ORJSONSerializer()
    )
    broker = RedisStreamBroker(url).with_result_backend(results).with_serializer(ORJSONSerializer())
    broker.add_middlewares(SimpleRetryMiddleware())
    broker.register_task(begin, "noop")
    broker.register_task(begin, "stamp")
    broker.register_task(flaky, "flaky", retry_on_error=True)
    return broker


async def prepare(url: str) -> None:
    broker = broker_at(url)
    await broker.startup()  # makes the group of consumers, which gets what is enqueued from now on
    await broker.shutdown()


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    broker = broker_at(url)
    await broker.startup()
    task = broker.find_task(asked.task)

    async def many(batch: list[roles.Payload]) -> None:
        for payload in batch:  # there is no bulk call
            await task.kiq(payload)

    await roles.send(asked, task.kiq, many)
    await broker.shutdown()


async def work(url: str, concurrency: int) -> None:
    logging.getLogger("taskiq").setLevel(logging.CRITICAL)  # it prints a traceback for each failure
    # SIGTERM is left to the system: told to stop during a job, taskiq's listener may wait for ever.
    await run_receiver_task(
        broker_at(url),
        max_async_tasks=concurrency,
        max_prefetch=100,
        validate_params=False,
        run_startup=True,
    )


roles.main(prepare=prepare, enqueue=enqueue, work=work)
