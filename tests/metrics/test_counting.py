"""Counting in this process: enqueues, requests; nothing while metrics are off."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline import Faultline, IdempotencyConflict, Job
from faultline.errors import DatabaseUnavailable, StaleLease
from faultline.metrics import count_enqueued, counted, exposition, meter, record_request
from faultline.metrics.catalogue import MAX_NAMES
from faultline.metrics.meter import Meter
from faultline.metrics.prometheus import kind_of
from faultline.metrics.series import BoundedNames
from faultline.statements import protocol
from tests.metrics.scraping import Page


def page() -> Page:
    found = exposition()
    assert found.content_type.startswith("text/plain; version=0.0.4")
    return Page(found.body.decode())


@pytest.fixture
def app(database_url: str) -> Any:
    application = Faultline(database_url)

    @application.task(name="mail", queue="mail")
    def mail(job: Job, to: str) -> None: ...

    yield application
    application.close()


def test_enqueues_are_counted_by_queue_and_outcome(app: Faultline, counting: Meter) -> None:
    mail = app.tasks["mail"]
    mail.options(idempotency_key="a").enqueue(to="a")
    mail.options(idempotency_key="a").enqueue(to="a")
    mail.options(queue="urgent").enqueue(to="b")
    mail.enqueue_many([{"to": "c"}, {"to": "a"}], idempotency_keys=[None, "a"])
    with pytest.raises(IdempotencyConflict):
        mail.options(idempotency_key="a").enqueue(to="other")
    counts = {
        (dict(labels)["queue"], dict(labels)["outcome"]): value
        for labels, value in page().all("faultline_jobs_enqueued_total").items()
        if value
    }
    assert counts == {("mail", "queued"): 2, ("mail", "existing"): 2, ("urgent", "queued"): 1}


def test_both_colours_of_enqueue_are_counted(app: Faultline, counting: Meter) -> None:
    import asyncio

    async def enqueue() -> None:
        await app.tasks["mail"].enqueue_async(to="a")
        await app.tasks["mail"].enqueue_many_async([{"to": "b"}, {"to": "c"}])
        await app.aclose()

    asyncio.run(enqueue())
    assert page().total("faultline_jobs_enqueued_total", queue="mail", outcome="queued") == 3


def test_an_enqueue_into_ever_new_queues_does_not_make_ever_new_series(
    app: Faultline, counting: Meter
) -> None:
    for number in range(MAX_NAMES + 7):
        app.tasks["mail"].options(queue=f"queue-{number}").enqueue(to="a")
    found = page()
    assert len(found.labels("faultline_jobs_enqueued_total", "queue")) == MAX_NAMES + 1
    assert found.total("faultline_jobs_enqueued_total", queue="other") == 7
    assert found.total("faultline_jobs_enqueued_total") == MAX_NAMES + 7


def test_without_metrics_a_statement_is_left_as_it_is(app: Faultline) -> None:
    assert meter.current.is_on is False
    statement = protocol.enqueue("mail", {}, queue="mail", priority=5, max_attempts=5)
    assert counted(statement, "mail") is statement
    count_enqueued("mail", [])
    record_request(method="GET", route="/", status=200, seconds=1.0)
    assert exposition().body == b""


def test_requests_are_counted_by_method_route_and_status(counting: Meter) -> None:
    for _ in range(2):
        record_request(method="GET", route="/jobs/{id}", status=200, seconds=0.01)
    record_request(method="BREW", route="/jobs/{id}", status=405, seconds=0.01)
    found = page()
    asked = {"method": "GET", "route": "/jobs/{id}", "status": "200"}
    assert found.total("faultline_http_requests_total", **asked) == 2
    assert found.total("faultline_http_requests_total", method="other", status="405") == 1
    assert found.total("faultline_http_request_seconds_count", route="/jobs/{id}") == 3


def test_ever_new_routes_share_one_series(counting: Meter) -> None:
    for number in range(MAX_NAMES + 3):
        record_request(method="GET", route=f"/{number}", status=404, seconds=0.01)
    found = page()
    assert len(found.labels("faultline_http_request_seconds_count", "route")) == MAX_NAMES + 1
    assert found.total("faultline_http_requests_total", route="other") == 3


def test_switching_on_twice_is_switching_on_once(counting: Meter) -> None:
    assert meter.switch_on() is counting


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DatabaseUnavailable("away"), "unavailable"),
        (psycopg.OperationalError("server closed the connection unexpectedly"), "connection_lost"),
        (psycopg.errors.AdminShutdown(), "connection_lost"),
        (psycopg.errors.SerializationFailure(), "conflict"),
        (psycopg.errors.DeadlockDetected(), "conflict"),
        (psycopg.errors.LockNotAvailable(), "lock_timeout"),
        (psycopg.errors.TooManyConnections(), "out_of_resources"),
        (psycopg.errors.DiskFull(), "out_of_resources"),
        (psycopg.errors.ReadOnlySqlTransaction(), "read_only"),
        (psycopg.errors.QueryCanceled(), "other"),
        (psycopg.errors.UndefinedColumn(), "other"),
        (StaleLease("token_mismatch"), None),
        (ValueError("of the handler's"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_of_the_database_has_a_kind(error: Exception, kind: str | None) -> None:
    assert kind_of(error) == kind


def test_names_that_were_known_stay_known() -> None:
    names = BoundedNames(2)
    assert [names(name) for name in ("a", "b", "c", "a", "b", "c")] == [
        *("a", "b", "other"),
        *("a", "b", "other"),
    ]
