"""Behind PgBouncer a result arrives by polling: LISTEN does not work there."""

from __future__ import annotations

import asyncio

from faultline import Faultline, Job
from tests.running import Connection, count, working
from tests.waiting import LIMIT_SECONDS


def test_a_result_arrives_through_a_pooler(pooled_app: Faultline, conn: Connection) -> None:
    @pooled_app.task()
    async def double(job: Job, number: int) -> int:
        return number * 2

    async def on_loop() -> int:
        try:
            return int(await (await double.enqueue_async(number=2)).result_async(LIMIT_SECONDS))
        finally:
            await pooled_app.aclose()

    with working(pooled_app):
        assert double.enqueue(number=1).result(LIMIT_SECONDS) == 2
        assert asyncio.run(on_loop()) == 4
    assert count(conn, "faultline.jobs WHERE awaited") == 0


def test_waiting_through_one_shared_connection_does_not_occupy_it(
    shared_url: str, conn: Connection
) -> None:
    app = Faultline(shared_url)

    @app.task()
    async def double(job: Job, number: int) -> int:
        return number * 2

    try:
        with working(app):
            jobs = [double.enqueue(number=number) for number in range(5)]
            assert [each.result(LIMIT_SECONDS) for each in jobs] == [0, 2, 4, 6, 8]
    finally:
        app.close()
