"""Whatever a handler does to its transaction: one effect on success, else none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import psycopg
import pytest

from faultline import Faultline, Job, JobRecord, JobState, RetryPolicy
from tests.conftest import NewDatabase
from tests.running import ended, working

from . import behaviours as behaviours
from .bending import BEHAVIOURS, Handler, drive

COLOURS = ("async", "plain")
AT_ONCE = RetryPolicy(base_seconds=0.001, cap_seconds=0.001)


class Ended(NamedTuple):
    record: JobRecord
    effects: int


def define(app: Faultline, url: str) -> None:
    """An async and a plain task; two attempts, so that the effects of each would show."""

    @app.task(name="async", max_attempts=2, retry=AT_ONCE, timeout=60)
    async def on_loop(job: Job, name: str) -> None:
        await BEHAVIOURS[name][0](Handler(job, url, is_async=True))

    @app.task(name="plain", max_attempts=2, retry=AT_ONCE, timeout=60)
    def in_thread(job: Job, name: str) -> None:
        drive(BEHAVIOURS[name][0](Handler(job, url, is_async=False)))


@pytest.fixture(scope="module")
def endings(new_database: NewDatabase, template: str) -> Iterator[dict[tuple[str, str], Ended]]:
    """Every behaviour, run by one worker, with its outcome."""
    with new_database(template) as url, psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE effects (job uuid)")
        app = Faultline(url)
        define(app, url)
        jobs = {
            (name, colour): app.find_task(colour).enqueue(name=name).job_id
            for name in BEHAVIOURS
            for colour in COLOURS
        }
        with working(app, concurrency=4):
            records = {key: ended(app, job_id) for key, job_id in jobs.items()}
        app.close()
        effects = dict(conn.execute("SELECT job, count(*) FROM effects GROUP BY job").fetchall())
        yield {key: Ended(record, effects.get(record.id, 0)) for key, record in records.items()}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_job_has_its_effect_if_it_succeeded_and_else_none(
    endings: dict[tuple[str, str], Ended], name: str, colour: str
) -> None:
    record, effects = endings[name, colour]
    has_succeeded = record.state is JobState.SUCCEEDED
    assert (effects, has_succeeded) == (int(has_succeeded), BEHAVIOURS[name][1]), record.last_error
