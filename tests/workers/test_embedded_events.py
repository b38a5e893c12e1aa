"""Events of a worker that another program runs go to the `logging` module."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from faultline import Faultline, Job
from faultline.event_records import write
from faultline.events import log
from faultline.logs import JobFieldsFilter
from tests.waiting import LIMIT_SECONDS

FORMAT = "%(levelname)s:%(name)s:%(message)s"


class Root:
    """A handler at the root logger, as `logging.basicConfig` sets one up."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self.records: list[logging.LogRecord] = []
        self.handler = logging.StreamHandler(self.text)
        self.handler.setFormatter(logging.Formatter(FORMAT))
        self.handler.addFilter(lambda record: self.records.append(record) or True)  # type: ignore[func-returns-value]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [vars(each) for each in self.records if vars(each).get("faultline_event") == event]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Root]:
    """Logging is configured from INFO on, and Faultline's log is not open."""
    monkeypatch.setattr(log, "_logger", None)
    root, level, factory = (
        logging.getLogger(),
        logging.getLogger().level,
        logging.getLogRecordFactory(),
    )
    kept = Root()
    root.addHandler(kept.handler)
    root.setLevel(logging.INFO)
    yield kept
    root.setLevel(level)
    root.removeHandler(kept.handler)
    logging.setLogRecordFactory(factory)


def run_worker(app: Faultline, *, jobs: int, queues: list[str] | None = None) -> None:
    async def serve() -> None:
        async with app.worker(queues, max_jobs=jobs, concurrency=1) as worker:
            await asyncio.wait_for(worker.wait(), LIMIT_SECONDS)
        await app.aclose()

    asyncio.run(serve())


def test_failures_discarded_results_and_warnings_reach_the_programs_log(
    app: Faultline, root: Root
) -> None:
    @app.task(name="shop.charge", max_attempts=1, queue="billing")
    async def charge(job: Job) -> None:
        raise ValueError("no such invoice: 42 %s")

    @app.task(name="shop.mail", queue="billing")
    async def mail(job: Job) -> str:
        async with job.transaction():
            pass
        return "lost"

    dead, discarded = charge.enqueue(), mail.enqueue()
    run_worker(app, jobs=2, queues=["billing", "bilingg"])
    [failure] = root.of("job_dead")
    assert failure["levelno"] == logging.WARNING
    assert failure["name"] == "faultline"
    assert (failure["faultline_job_id"], failure["faultline_task"]) == (
        str(dead.job_id),
        "shop.charge",
    )
    assert (failure["faultline_attempt"], failure["faultline_token"]) == (1, 1)
    [result] = root.of("result_discarded")
    assert result["faultline_job_id"] == str(discarded.job_id)
    [typo] = root.of("queue_unused")
    assert (typo["levelno"], typo["faultline_queue"]) == (logging.WARNING, "bilingg")
    assert len(root.of("worker_started")) == 1
    text = root.text.getvalue()
    assert "WARNING:faultline:job_dead job_id=" in text
    assert "error='ValueError: no such invoice: 42 %s'" in text
    assert 'raise ValueError("no such invoice: 42 %s")' in text  # the traceback
    assert "lease_acquired" not in text


def test_routine_events_are_written_at_debug(app: Faultline, root: Root) -> None:
    @app.task(name="idle")
    async def idle(job: Job) -> None: ...

    logger = logging.getLogger("faultline")
    logger.setLevel(logging.DEBUG)
    try:
        idle.enqueue()
        run_worker(app, jobs=1)
    finally:
        logger.setLevel(logging.NOTSET)
    assert [each["levelno"] for each in root.of("commit_ok")] == [logging.DEBUG]


def test_a_filter_keeps_the_job_that_an_event_names(root: Root) -> None:
    """Formats that name the fields need it; it knows only the job of its thread."""
    root.handler.addFilter(JobFieldsFilter())
    write("job_dead", logging.WARNING, {"job_id": "1", "task": "shop.charge"})
    [record] = root.records
    assert vars(record)["faultline_job_id"] == "1"
    assert vars(record)["faultline_token"] is None


def test_long_values_are_shortened_in_the_message_only(root: Root) -> None:
    write("degraded", logging.WARNING, {"reason": "x" * 5000, "hint": None})
    [record] = root.records
    assert record.getMessage() == f"degraded reason={'x' * 499}…"
    assert vars(record)["faultline_reason"] == "x" * 5000


def test_an_error_of_the_programs_logging_stops_nothing(root: Root) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter of the program")

    logger = logging.getLogger("faultline")
    logger.addFilter(refuse)
    try:
        write("degraded", logging.WARNING, {})
    finally:
        logger.removeFilter(refuse)
    assert root.records == []


def test_a_traceback_with_a_lone_surrogate_can_be_written_to_a_file(root: Root) -> None:
    write("job_dead", logging.WARNING, {"traceback": "ValueError: a\udc80b"})
    assert "ValueError: a\\udc80b" in root.text.getvalue()
    root.text.getvalue().encode()
