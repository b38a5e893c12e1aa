"""Which job a log line belongs to: in the handler, beside it, and after it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from faultline import Faultline, Job, JobRecord, current_job
from faultline.handler_errors import logged_traceback
from faultline.logs import JobFieldsFilter, add_job, annotate_records
from tests.running import ended, working
from tests.waiting import wait_until

NAMES = ("faultline_job_id", "faultline_task", "faultline_attempt", "faultline_token")


class Kept(logging.Handler):
    """Keeps every record."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def fields(self, message: str) -> tuple[Any, ...]:
        [record] = [each for each in self.records if each.getMessage() == message]
        return tuple(getattr(record, name) for name in NAMES)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    before = logging.getLogRecordFactory()
    logger = logging.getLogger("faultline-test-fields")
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers.clear()
    logging.setLogRecordFactory(before)


@pytest.fixture
def kept(logger: logging.Logger) -> Kept:
    handler = Kept()
    logger.addHandler(handler)
    return handler


def test_hooks_tasks_and_copied_contexts_belong_to_the_job(
    app: Faultline, logger: logging.Logger, kept: Kept
) -> None:
    @app.around_attempt
    def hook(job: Job) -> Iterator[None]:
        logger.info("before the handler")
        yield
        logger.info("after the handler")

    @app.on_dead
    def dead(record: JobRecord, error: Exception | None) -> None:
        logger.info("dead")

    @app.task(name="fail", max_attempts=1)
    async def fail(job: Job) -> None:
        async def beside() -> None:
            logger.info("in a task of the handler")

        await asyncio.create_task(beside())
        await asyncio.to_thread(logger.info, "in a thread with the context")
        thread = threading.Thread(target=lambda: logger.info("in a thread of its own"))
        thread.start()
        thread.join()
        logger.info("in the handler", extra={"job_id": "mine", "task": "mine"})
        raise ValueError

    with working(app):
        job_id = fail.enqueue().job_id
        ended(app, job_id)
        wait_until(lambda: any(each.msg == "dead" for each in kept.records))
    of_job = (str(job_id), "fail", 1, 1)
    for message in (
        *("before the handler", "in a task of the handler", "in a thread with the context"),
        *("in the handler", "dead"),
    ):
        assert kept.fields(message) == of_job, message
    assert kept.fields("in a thread of its own") == (None,) * 4
    logger.info("after the worker")
    assert kept.fields("after the worker") == (None,) * 4
    assert current_job() is None


def test_jobs_that_run_at_once_keep_their_own_fields(
    app: Faultline, logger: logging.Logger, kept: Kept
) -> None:
    together, began = threading.Barrier(2), asyncio.Event()

    @app.task(name="plain")
    def plain(job: Job) -> None:
        together.wait(30)
        logger.info(f"plain {job.id}")

    @app.task(name="awaited")
    async def awaited(job: Job, wait: bool) -> None:
        if wait:
            await began.wait()
        else:
            began.set()
            await asyncio.sleep(0)
        logger.info(f"awaited {job.id}")

    with working(app, concurrency=4):
        jobs = [plain.enqueue() for _ in range(2)]
        jobs += [awaited.enqueue(wait=wait) for wait in (True, False)]
        for job in jobs:
            ended(app, job.job_id)
    for record in kept.records:
        task, job_id = record.getMessage().split()
        assert kept.fields(record.getMessage())[:2] == (job_id, task)


def test_the_filter_gives_every_record_the_fields(logger: logging.Logger, kept: Kept) -> None:
    """For processes that are no workers and share a format with them."""
    logging.setLogRecordFactory(logging.LogRecord)
    kept.addFilter(JobFieldsFilter())
    logger.info("no worker here")
    assert kept.fields("no worker here") == (None,) * 4


def test_a_record_factory_of_the_application_is_kept(logger: logging.Logger, kept: Kept) -> None:
    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = logging.LogRecord(*args, **kwargs)
        record.mine = "kept"
        return record

    logging.setLogRecordFactory(make)
    annotate_records()
    annotate_records()  # a second worker in the process
    logger.info("once")
    assert vars(kept.records[0])["mine"] == "kept"
    assert kept.fields("once") == (None,) * 4
    assert logging.getLogRecordFactory()._make is make  # type: ignore[attr-defined]


def test_the_structlog_processor_does_not_replace_fields_of_the_line(app: Faultline) -> None:
    seen: list[Any] = []

    @app.task(name="log")
    def log(job: Job) -> None:
        seen.append(add_job(None, "info", {"event": "mine", "task": "mine"}))

    with working(app):
        job_id = log.enqueue().job_id
        ended(app, job_id)
    assert seen == [
        {"event": "mine", "task": "mine", "job_id": str(job_id), "attempt": 1, "token": 1}
    ]
    assert add_job(None, "info", {"event": "outside"}) == {"event": "outside"}


def test_a_logged_traceback_is_bounded_and_ends_with_the_error() -> None:
    def raise_deep(depth: int) -> None:
        if depth:
            raise_deep(depth - 1)
        raise ValueError(f"postgresql://shop:secret@host/db {'x' * 20_000} the end")

    with pytest.raises(ValueError, match="the end") as raised:
        raise_deep(50)
    trace = logged_traceback(raised.value)
    assert trace is not None
    assert len(trace) == 8_000
    assert trace.endswith("the end")
    with pytest.raises(ValueError, match="short") as raised:
        raise ValueError("short postgresql://shop:secret@host/db")
    assert "secret" not in str(logged_traceback(raised.value))
    assert logged_traceback(ValueError("not raised")) is None
