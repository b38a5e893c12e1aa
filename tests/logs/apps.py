"""Apps whose handlers log; one configures logging itself, one uses Sentry."""

from __future__ import annotations

import contextvars
import json
import logging
import os
from pathlib import Path
from typing import Any

import structlog

from faultline import Faultline, Job, RetryPolicy, current_job

SOON = RetryPolicy(base_seconds=0, cap_seconds=0)
logger = logging.getLogger("shop.mail")
struct = structlog.get_logger()
leftover: contextvars.ContextVar[str] = contextvars.ContextVar("leftover", default="nothing")

app = Faultline()


def say(job: Job) -> None:
    logger.info("stdlib of %s", job.task, extra={"customer": 7, "event": "mine"})
    struct.info(f"structlog of {job.task}", customer=7)
    assert current_job() is job
    assert leftover.get() == "nothing"
    leftover.set("set by another job")


@app.on_startup
def begin() -> None:
    app.state.started_in = os.getpid()
    logger.info("startup")


@app.on_shutdown
def end() -> None:
    logger.info("shutdown of %s", app.state.started_in)


@app.task(name="plain")
def plain(job: Job) -> None:
    say(job)


@app.task(name="awaited")
async def awaited(job: Job) -> None:
    say(job)


@app.task(name="child", process=True)
def child(job: Job) -> None:
    assert app.state.started_in == os.getpid()
    say(job)


@app.task(name="fail", max_attempts=2, retry=SOON)
def fail(job: Job) -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ValueError("outer") from error


@app.task(name="fail_in_child", max_attempts=1, process=True)
def fail_in_child(job: Job) -> None:
    raise ValueError("in the child")


# ── an application that configures logging itself ────────────────────────────────────────────────

configured = Faultline()


@configured.on_startup
def configure() -> None:
    """As late as possible: Faultline's own default must not be in the way."""
    logging.basicConfig(
        format="own %(levelname)s %(message)s job=%(faultline_job_id)s task=%(faultline_task)s"
        " attempt=%(faultline_attempt)s token=%(faultline_token)s",
        level=logging.INFO,
    )
    structlog.configure(
        processors=[add_own_job, structlog.processors.JSONRenderer()],
        logger_factory=structlog.WriteLoggerFactory(),
    )


def add_own_job(logger: Any, method: str, fields: Any) -> Any:
    from faultline.logs import add_job

    return add_job(logger, method, fields)


@configured.task(name="plain")
def plain_configured(job: Job) -> None:
    say(job)


# ── an application with Sentry ───────────────────────────────────────────────────────────────────

watched = Faultline()


@watched.on_startup
def begin_sentry() -> None:
    import sentry_sdk
    from sentry_sdk.transport import Transport

    class FileTransport(Transport):
        """Writes each event to a file that the test reads."""

        def capture_envelope(self, envelope: Any) -> None:
            if (event := envelope.get_event()) is not None:
                with Path(os.environ["SENTRY_EVENTS"]).open("a") as out:
                    out.write(json.dumps(event, default=str) + "\n")

    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=FileTransport)


@watched.task(name="thread", max_attempts=2, retry=SOON)
def fail_in_thread(job: Job) -> None:
    logger.info("a breadcrumb of %s", job.attempt)
    raise ValueError("thread")


@watched.task(name="loop", max_attempts=1)
async def fail_on_loop(job: Job) -> None:
    raise ValueError("loop")


@watched.task(name="process", max_attempts=1, process=True)
def fail_in_process(job: Job) -> None:
    raise ValueError("process")


@watched.task(name="slow", max_attempts=1, timeout=0.2)
def too_slow(job: Job) -> None:
    while True:
        pass


@watched.task(name="logged", max_attempts=1)
def fail_and_log(job: Job) -> None:
    try:
        raise ValueError("logged")
    except ValueError:
        logger.exception("it failed")
        raise


@watched.task(name="message", max_attempts=1)
def log_an_error(job: Job) -> None:
    logger.error("only a message")


@watched.task(name="after", max_attempts=1)
def fail_after_commit(job: Job) -> None:
    with job.transaction():
        pass
    raise ValueError("after")
