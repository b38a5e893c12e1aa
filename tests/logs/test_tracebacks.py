"""Tracebacks of handlers begin at the handler, not in the worker that called it."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from faultline import Faultline, InvalidInput, Job
from faultline.handler_errors import traceback_of
from tests.running import EventTap, work_off


def files(trace: str) -> list[str]:
    return re.findall(r'File "(.*?)"', trace)


@pytest.mark.parametrize("kind", ["plain", "async", "hooked"])
def test_a_traceback_begins_in_the_handler(app: Faultline, events: EventTap, kind: str) -> None:
    def fail() -> None:
        raise ValueError("inside")

    if kind == "async":

        @app.task(name="t", max_attempts=1)
        async def awaited(job: Job) -> None:
            fail()

    else:

        @app.task(name="t", max_attempts=1)
        def plain(job: Job) -> None:
            fail()

    if kind == "hooked":

        @app.around_attempt
        def hook(job: Job):  # type: ignore[no-untyped-def]
            yield

    record = work_off(app, app.tasks["t"].enqueue().job_id)
    [event] = events.of("job_dead")
    assert record.last_error is not None
    for trace in (event["traceback"], record.last_error):
        assert {files(trace)[0], files(trace)[-1]} == {__file__}
        assert kind == "hooked" or len(files(trace)) == 2  # a hook is between worker and handler
        assert 'raise ValueError("inside")' in trace


def test_frames_of_an_sdk_that_wraps_the_threads_work_are_left_out(
    app: Faultline, events: EventTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk: dict[str, Any] = {}
    source = "def wrapped(function):\n  return lambda *args, **kwargs: function(*args, **kwargs)"
    exec(compile(source, "/elsewhere/sdk.py", "exec"), sdk)  # noqa: S102 - a file outside of Faultline
    submit = ThreadPoolExecutor.submit

    def instrumented(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return submit(pool, sdk["wrapped"](function), *args, **kwargs)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", instrumented)

    @app.task(name="t", max_attempts=1)
    def fail(job: Job) -> None:
        raise ValueError("inside")

    work_off(app, fail.enqueue().job_id)
    [event] = events.of("job_dead")
    assert files(event["traceback"]) == [__file__]


def test_frames_of_faultline_below_the_handler_are_kept(app: Faultline, events: EventTap) -> None:
    @app.task(name="t", max_attempts=1)
    def enqueue(job: Job) -> None:
        app.enqueue("no job")  # type: ignore[arg-type]

    work_off(app, enqueue.enqueue().job_id)
    first, *rest = files(events.of("job_dead")[0]["traceback"])
    assert first == __file__
    assert rest
    assert all("faultline" in file for file in rest)


def test_an_error_of_faultline_alone_keeps_its_traceback(app: Faultline) -> None:
    with pytest.raises(InvalidInput) as refused:
        app.enqueue("no job")  # type: ignore[arg-type]
    own = refused.value.with_traceback(refused.tb.tb_next)  # without this file
    assert files(traceback_of(own))
