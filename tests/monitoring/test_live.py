"""A live Prometheus scrapes live processes, runs the shipped rules, and answers every question of ours."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.monitoring.crew import Member, member
from tests.monitoring.jobs import outlive, tick
from tests.monitoring.prometheus import Prometheus, scraping
from tests.monitoring.shipped import all_expressions, dashboard_expressions
from tests.monitoring.tools import found

BOUND_SECONDS = 30.0
LOOK_SECONDS = 0.02
# The first lease and no other, and again and again: a heartbeat may have been on its way.
EXPIRE = (
    "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
    " WHERE id = %s AND fencing_token = 1"
)

Start = Callable[..., Member]
Watch = Callable[..., Prometheus]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    found("prometheus")
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack: ExitStack, database_url: str, tmp_path: Path) -> Start:
    def start(name: str, *command: str) -> Member:
        return stack.enter_context(member(database_url, tmp_path / f"{name}.log", *command))

    return start


@pytest.fixture
def watch(stack: ExitStack, tmp_path: Path) -> Watch:
    def watch(**jobs: list[Member]) -> Prometheus:
        targets = {f"faultline-{name}": [m.address for m in jobs[name]] for name in jobs}
        return stack.enter_context(scraping(targets, tmp_path))

    return watch


def test_a_live_prometheus_answers_every_question(
    start: Start, watch: Watch, conn: psycopg.Connection[Any]
) -> None:
    tick.enqueue(conn=conn)
    prometheus = watch(
        api=[start("api", "api", "--open-metrics", "--port")],
        worker=[start("worker", "worker", "--queues", "steady,shaky", "--metrics-port")],
        reconciler=[start("reconciler", "reconciler", "--metrics-port")],
    )
    for happened in (
        "count(up == 1) == 3",
        "faultline_reconciler_leading == 1",
        "faultline_http_requests_total > 0",
        "rate(faultline_jobs_succeeded_total[10s]) > 0",
        "increase(faultline_jobs_failed_total{reason='attempts_spent'}[10s]) > 0",
        "queue:faultline_jobs_retried:ratio_rate5m > 0",
        "instance:faultline_coordination_overhead:ratio_rate5m > 0",
        "ALERTS{alertname='FaultlineDeadJobsRising', queue='shaky', alertstate='firing'}",
    ):
        prometheus.wait_for(happened)

    for expression in all_expressions():
        prometheus.query(expression.filled_in)
    for expression in dashboard_expressions():
        prometheus.query_range(expression.filled_in)

    # Not all at one moment: after a scrape that came too late a process has no series until the next.
    for selector in {each for expression in all_expressions() for each in expression.selectors}:
        prometheus.wait_for(selector)

    rules = prometheus.evaluated_rules()
    assert len(rules) == 16
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


def test_a_refused_write_lost_workers_and_a_lost_reconciler_are_noticed(
    start: Start, watch: Watch, conn: psycopg.Connection[Any]
) -> None:
    lease = ("--lease-seconds", "600", "--heartbeat-seconds", "0.2")
    worker = ("worker", "--queues", "contested", *lease, "--no-reconciler")
    late = start("late", *worker, "--no-self-fencing", "--metrics-port")
    reconciler = start("reconciler", "reconciler", "--metrics-port")
    job = outlive.enqueue(conn=conn).job_id
    wait_until(conn, job, "state = 'running'")
    other = start("other", *worker, "--metrics-port")
    prometheus = watch(worker=[late, other], reconciler=[reconciler])
    # An increase is seen from a 0 on: the one who will be refused has to have shown it.
    prometheus.wait_for("count(faultline_stale_write_rejected_total{reason='token_mismatch'}) == 2")
    # And what is lost is counted from when the leader has first counted anything.
    prometheus.wait_for("faultline_workers{status='alive'} == 2")

    late.send(signal.SIGSTOP)
    wait_until(conn, job, "state = 'succeeded'", meanwhile=EXPIRE)
    prometheus.wait_for("increase(faultline_leases_expired_total[1m]) > 0")
    prometheus.wait_for("increase(faultline_leases_taken_over_total{cause='expired'}[1m]) > 0")
    late.send(signal.SIGCONT)
    prometheus.wait_for(
        "ALERTS{alertname='FaultlineStaleWriteRefused', reason='token_mismatch', alertstate='firing'}"
    )

    # These two wait for minutes before they fire: that they have begun to is what can be seen.
    prometheus.wait_for("faultline_workers{status='alive'} == 2")
    prometheus.wait_for("absent(ALERTS{alertname=~'FaultlineNoWorkers|FaultlineReconcilerAbsent'})")
    late.kill()
    other.kill()
    prometheus.wait_for(
        "ALERTS{alertname='FaultlineNoWorkers', alertstate='pending'}"
        " unless on() ALERTS{alertname='FaultlineReconcilerAbsent'}"
    )
    reconciler.kill()
    prometheus.wait_for("ALERTS{alertname='FaultlineReconcilerAbsent', alertstate='pending'}")
    prometheus.wait_for("ALERTS{alertname='FaultlineNoWorkers', alertstate='pending'}")


def wait_until(
    conn: psycopg.Connection[Any], job: UUID, condition: str, *, meanwhile: str | None = None
) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    query = f"SELECT FROM faultline.jobs WHERE id = %s AND {condition}"
    while conn.execute(query.encode(), [job]).fetchone() is None:
        if meanwhile is not None:
            conn.execute(meanwhile.encode(), [job])
        assert time.monotonic() < deadline, f"never {condition}"
        time.sleep(LOOK_SECONDS)
