"""What a worker writes for people: at its start, and about tasks it does not know."""

from __future__ import annotations

import socket
from io import StringIO

import pytest

from faultline import Faultline, Job
from faultline.events import log
from faultline.metrics import Part, meter
from faultline.metrics.endpoint import Endpoint
from tests.running import Connection, EventTap, working
from tests.waiting import wait_until


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """The log as text, without colours."""
    stream = StringIO()
    for name, value in (("_logger", None), ("_stream", None), ("is_json", False)):
        monkeypatch.setattr(log, name, value)
    log.open(style="console", stream=stream)
    return stream


def started(app: Faultline, terminal: StringIO, **settings: object) -> list[str]:
    with working(app, worker_id="web-1", **settings):
        wait_until(lambda: "if it is killed" in terminal.getvalue(), "the start")
    return [
        line.partition("] ")[2].rstrip()
        for line in terminal.getvalue().splitlines()
        if "worker_started" in line or "if it is killed" in line
    ]


def test_a_start_is_said_in_sentences(app: Faultline, terminal: StringIO) -> None:
    @app.task(name="shop.charge", queue="billing")
    async def charge(job: Job) -> None: ...

    @app.task(name="shop.mail")
    async def mail(job: Job) -> None: ...

    assert started(app, terminal, concurrency=3) == [
        "worker_started: web-1 runs 2 tasks (shop.charge, shop.mail) of the queues billing, default;"
        " at most 3 jobs at once",
        "if it is killed, its jobs run again within 0.6 s; if it stalls, within 19.4 s",
    ]


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        (["*"], "of every queue, now default; at most 10 jobs at once"),
        ({"mail": 2, "*": 5}, "of every queue (at most 5), now default, mail (at most 2);"),
        (["mail"], "of the queue mail; at most 10 jobs at once"),
    ],
    ids=str,
)
def test_the_start_names_the_queues_as_they_were_given(
    app: Faultline, terminal: StringIO, queues: object, says: str
) -> None:
    @app.task(name="shop.mail")
    async def mail(job: Job) -> None: ...

    assert says in started(app, terminal, queues=queues)[0]


def test_the_start_is_one_event_with_fields_in_json(app: Faultline, events: EventTap) -> None:
    @app.task(name="shop.mail")
    async def mail(job: Job) -> None: ...

    with working(app, worker_id="web-1"):
        wait_until(lambda: events.of("worker_started"), "the start")
    [event] = events.of("worker_started")
    assert (event["worker"], event["queues"], event["concurrency"]) == ("web-1", ["default"], 10)


def test_the_address_of_the_metrics_is_said(terminal: StringIO) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meter.switch_on(Part.WORKER)
    try:
        with Endpoint(meter.current.registry, host="127.0.0.1", port=port):
            pass
    finally:
        meter.switch_off()
    assert f"metrics are served on http://127.0.0.1:{port}/metrics" in terminal.getvalue()


def test_a_job_of_an_unknown_task_is_explained_with_the_closest_name(
    app: Faultline, conn: Connection, terminal: StringIO
) -> None:
    @app.task(name="shop.charge")
    async def charge(job: Job) -> None: ...

    conn.execute("SELECT faultline.enqueue('shop.chrage')")
    with working(app):
        wait_until(lambda: "jobs_deferred" in terminal.getvalue(), "the deferral")
    assert (
        "this app has no task shop.chrage, so another worker must run its jobs; did you mean"
        " shop.charge?"
    ) in terminal.getvalue()
