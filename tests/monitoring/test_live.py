"""A live Prometheus scrapes processes, and evaluates the rules and dashboards."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.limits.steps import set_limit
from tests.monitoring.jobs import outlive_lease, tick
from tests.monitoring.monitoring_files import all_expressions, dashboard_expressions
from tests.monitoring.processes import MonitoredProcess, monitored_process
from tests.monitoring.prometheus import Prometheus, scraping
from tests.monitoring.tools import find_program
from tests.waiting import wait_until

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.02
# Only the first lease, and repeatedly, because a heartbeat may renew it at the same time.
EXPIRE = (
    "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
    " WHERE id = %s AND fencing_token = 1"
)

Start = Callable[..., MonitoredProcess]
StartPrometheus = Callable[..., Prometheus]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    find_program("prometheus")
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack: ExitStack, database_url: str, tmp_path: Path) -> Start:
    def start(name: str, *command: str) -> MonitoredProcess:
        return stack.enter_context(
            monitored_process(database_url, tmp_path / f"{name}.log", *command)
        )

    return start


@pytest.fixture
def start_prometheus(stack: ExitStack, tmp_path: Path) -> StartPrometheus:
    def start_prometheus(**jobs: list[MonitoredProcess]) -> Prometheus:
        targets = {f"faultline-{name}": [m.address for m in jobs[name]] for name in jobs}
        return stack.enter_context(scraping(targets, tmp_path))

    return start_prometheus


@pytest.mark.slow
def test_every_rule_and_panel_gets_data_from_live_processes(
    start: Start, start_prometheus: StartPrometheus, conn: psycopg.Connection[Any]
) -> None:
    set_limit(conn, "queue:shaky", 100)  # reached by none
    tick.options(conn=conn).enqueue()
    prometheus = start_prometheus(
        api=[start("api", "api", "--open-metrics", "--port")],
        worker=[start("worker", "worker", "--queues", "steady,shaky", "--metrics-port")],
        reconciler=[start("reconciler", "reconciler", "--metrics-port")],
    )
    for expression in (
        "count(up == 1) == 3",
        "faultline_reconciler_leading == 1",
        "faultline_http_requests_total > 0",
        "rate(faultline_jobs_succeeded_total[10s]) > 0",
        "increase(faultline_jobs_failed_total{reason='attempts_spent'}[10s]) > 0",
        "queue:faultline_jobs_retried:ratio_rate5m > 0",
        "instance:faultline_coordination_overhead:ratio_rate5m > 0",
        "ALERTS{alertname='FaultlineDeadJobsRising', queue='shaky', alertstate='firing'}",
    ):
        prometheus.wait_for(expression)

    for each in all_expressions():
        prometheus.query(each.filled_in)
    for each in dashboard_expressions():
        prometheus.query_range(each.filled_in)

    # One after another: after a late scrape a process has no series until the next scrape.
    for selector in {name for each in all_expressions() for name in each.selectors}:
        prometheus.wait_for(selector)

    rules = prometheus.evaluated_rules()
    assert len(rules) == 18
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []


@pytest.mark.slow
def test_alerts_notice_a_refused_write_lost_workers_and_a_lost_reconciler(
    start: Start, start_prometheus: StartPrometheus, conn: psycopg.Connection[Any]
) -> None:
    lease = ("--lease-seconds", "600", "--heartbeat-seconds", "0.2")
    worker = ("worker", "--queues", "contested", *lease, "--no-reconciler")
    late = start("late", *worker, "--no-self-fencing", "--metrics-port")
    reconciler = start("reconciler", "reconciler", "--metrics-port")
    job = outlive_lease.options(conn=conn).enqueue().job_id
    wait_for_job(conn, job, "state = 'running'")
    other = start("other", *worker, "--metrics-port")
    prometheus = start_prometheus(worker=[late, other], reconciler=[reconciler])
    # An increase is only seen after a scraped 0, so the worker that will be refused must report one first.
    prometheus.wait_for("count(faultline_stale_write_rejected_total{reason='token_mismatch'}) == 2")
    # Lost workers are counted only after the leader's first count.
    prometheus.wait_for("faultline_workers{status='alive'} == 2")

    late.send(signal.SIGSTOP)
    wait_for_job(conn, job, "state = 'succeeded'", meanwhile=EXPIRE)
    prometheus.wait_for("increase(faultline_leases_expired_total[1m]) > 0")
    prometheus.wait_for("increase(faultline_leases_taken_over_total{cause='expired'}[1m]) > 0")
    late.send(signal.SIGCONT)
    prometheus.wait_for(
        "ALERTS{alertname='FaultlineStaleWriteRefused', reason='token_mismatch', alertstate='firing'}"
    )

    # These two alerts fire after minutes; the test only waits until they are pending.
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


def wait_for_job(
    conn: psycopg.Connection[Any], job: UUID, condition: str, *, meanwhile: str | None = None
) -> None:
    query = f"SELECT FROM faultline.jobs WHERE id = %s AND {condition}"

    def act() -> None:
        if meanwhile is not None:
            conn.execute(meanwhile.encode(), [job])

    wait_until(
        lambda: conn.execute(query.encode(), [job]).fetchone() is not None,
        condition,
        limit_seconds=TIMEOUT_SECONDS,
        check=act,
    )
