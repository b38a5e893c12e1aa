"""Real worker processes export their traces to a collector."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import pytest

from tests.processes import fleet as fleets
from tests.processes.conftest import database, fleet
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase
from tests.tracing import apps
from tests.tracing.collector import Collector, attributes, collecting
from tests.tracing.recorded import Recorded, span_id, trace_id

__all__ = ["database", "fleet"]

QUEUE = ("--queues", "shop")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def _our_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "APP", "tests.tracing.apps:app")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as running:
        monkeypatch.setenv(ENDPOINT, running.url)
        yield running


def hexed(number: int, digits: int) -> str:
    return f"{number:0{digits}x}"


def test_a_worker_posts_its_spans_in_the_trace_of_the_enqueuer(
    fleet: Fleet, database: ObservedDatabase, collector: Collector, recorded: Recorded
) -> None:
    job_id = database.enqueue(apps.greet)
    worker = fleet.started(*QUEUE)
    database.wait_for_state(job_id)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0

    # It has ended, so all is there: what had not been sent was sent at its end.
    enqueue = recorded.one("enqueue shop")
    (execute,), (commit,) = collector.named("execute shop"), collector.named("commit shop")
    (inside,), (claim,) = collector.named("greeting"), collector.named("claim shop")
    assert execute.trace_id.hex() == hexed(trace_id(enqueue), 32)
    assert execute.parent_span_id.hex() == hexed(span_id(enqueue), 16)
    assert inside.parent_span_id == commit.parent_span_id == execute.span_id
    assert [link.span_id for link in execute.links] == [claim.span_id]
    assert attributes(execute)["faultline.job_id"] == str(job_id)
    assert attributes(commit)["faultline.commit"] == "transaction"
    assert set(collector.paths) == {"/v1/traces"}
    for resource in collector.resources():
        assert resource["service.name"] == "faultline-worker"
        assert resource["process.pid"] == worker.pid


@pytest.mark.slow
def test_a_service_has_the_name_that_its_environment_gives_it(
    fleet: Fleet, database: ObservedDatabase, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing")
    job_id = database.enqueue(apps.nothing)
    worker = fleet.started(*QUEUE)
    database.wait_for_state(job_id)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert {resource["service.name"] for resource in collector.resources()} == {"billing"}


def test_a_handler_in_a_child_process_is_inside_the_same_attempt(
    fleet: Fleet, database: ObservedDatabase, collector: Collector
) -> None:
    job_id = database.enqueue(apps.compute)
    worker = fleet.started(*QUEUE)
    database.wait_for_state(job_id)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0

    (execute,), (inside,) = collector.named("execute shop"), collector.named("computing")
    (commit,) = collector.named("commit shop")
    assert inside.trace_id == commit.trace_id == execute.trace_id
    assert inside.parent_span_id == commit.parent_span_id == execute.span_id
    assert len({resource["process.pid"] for resource in collector.resources()}) == 2


@pytest.mark.slow
def test_an_application_with_a_provider_of_its_own_is_left_to_it(
    fleet: Fleet, database: ObservedDatabase, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enqueues by name: importing the application would set a provider here."""
    monkeypatch.setattr(fleets, "APP", "tests.tracing.own_provider:app")
    for task in ("compute", "greet"):
        database.conn.execute("SELECT faultline.enqueue(%s, queue => 'shop')", [task])
    worker = fleet.started(*QUEUE)
    database.wait_for_all(2)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0

    executes = {span.span_id for span in collector.named("execute shop")}
    (computing,), (greeting,) = collector.named("computing"), collector.named("greeting")
    assert {computing.parent_span_id, greeting.parent_span_id} == executes
    resources = collector.resources()
    assert {resource["service.name"] for resource in resources} == {"shop"}
    assert all("faultline.version" not in resource for resource in resources)


@pytest.mark.slow
def test_a_refused_commit_in_a_child_process_is_seen_by_both(
    fleet: Fleet, database: ObservedDatabase, collector: Collector
) -> None:
    job_id = database.enqueue(apps.compute_too_late)
    worker = fleet.started(*QUEUE, "--no-self-fencing")
    database.wait_for_state(job_id, "failed")
    worker.wait_for_event("stale_write_blocked", job_id=job_id)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0

    (execute,), (commit,) = collector.named("execute shop"), collector.named("commit shop")
    assert attributes(commit)["faultline.reason"] == "lease_expired"
    assert attributes(execute)["faultline.outcome"] == "stale"
    assert "stale_write_blocked" in [event.name for event in execute.events]


@pytest.mark.slow
def test_every_process_of_a_supervised_worker_sends_its_own(
    fleet: Fleet, database: ObservedDatabase, collector: Collector
) -> None:
    jobs = [database.enqueue(apps.nothing) for _ in range(20)]
    supervisor = fleet.worker(*QUEUE, "--processes", "2", "--claim-ahead", "0", "-c", "1")
    for job_id in jobs:
        database.wait_for_state(job_id)
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert len(collector.named("execute shop")) == len(jobs)
    pids = {resource["process.pid"] for resource in collector.resources()}
    assert supervisor.pid not in pids


@pytest.mark.slow
def test_a_reconciler_exports_its_reconcile_span(
    fleet: Fleet, database: ObservedDatabase, collector: Collector
) -> None:
    job_id = database.enqueue(apps.nothing)
    database.conn.execute("SELECT faultline.claim('lost-worker', '{shop}', 1, '0.1 s')")
    reconciler = fleet.reconciler()
    reconciler.wait_for_event("lease_reaped", job_id=job_id)
    reconciler.send(signal.SIGTERM)
    assert reconciler.wait() == 0
    (taken,) = collector.named("reconcile")
    assert attributes(taken.events[0])["faultline.lost_worker"] == "lost-worker"
    assert collector.resources()[0]["service.name"] == "faultline-reconciler"


@pytest.mark.slow
def test_an_unreachable_collector_costs_no_job_and_is_logged(
    fleet: Fleet, database: ObservedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        jobs = [database.enqueue(apps.nothing) for _ in range(20)]
        worker = fleet.started(*QUEUE)
        for job_id in jobs:
            database.wait_for_state(job_id)
        worker.wait_for_event("degraded", code="traces_not_sent")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert worker.stray_lines == []  # not one line that is not an event


@pytest.mark.slow
def test_a_collector_that_refuses_costs_no_job(
    fleet: Fleet, database: ObservedDatabase, collector: Collector
) -> None:
    collector.answer = 400
    job_id = database.enqueue(apps.greet)
    worker = fleet.started(*QUEUE)
    database.wait_for_state(job_id)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert collector.paths
    assert worker.stray_lines == []
