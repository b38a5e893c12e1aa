"""One endpoint for several processes: sums, and the gauges of dead processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.metrics import jobs
from tests.metrics.scraping import free_port, scrape, scrape_until
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

TWO = ("--processes", "2", "--lease-seconds", "600")


def supervisor(fleet: Fleet, *options: str) -> tuple[Process, int]:
    port = free_port()
    process = fleet.worker("--metrics-port", str(port), *TWO, *options, name="supervisor")
    process.wait_for_event("worker_started", times=2)
    return process, port


def test_two_processes_are_added_up_and_a_death_takes_nothing_away(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    process, port = supervisor(fleet, "--concurrency", "1")
    held = [database.enqueue(jobs.pay, gate="go") for _ in range(2)]
    pids = {database.wait_for_mark(job_id) for job_id in held}
    assert len(pids) == 2
    page = scrape_until(
        port,
        lambda p: (
            p.total("faultline_running_jobs") == 2
            and p.total("faultline_jobs_claimed_total", queue="default") >= 2
        ),
        "not both run",
    )
    assert page.total("faultline_jobs_claimed_total", queue="default") == 2
    assert page.all("faultline_build_info").values().__len__() == 1

    victim = database.wait_for_mark(held[0])
    os.kill(victim, signal.SIGKILL)
    process.wait_for_event("process_restarted")
    after = scrape_until(
        port,
        # the dead one's job runs again, in the process that has taken its place
        lambda p: (
            p.total("faultline_jobs_claimed_total", queue="default") == 3
            and p.total("faultline_leases_acquired_total") >= 3
        ),
        "the third claim was not counted",
    )
    assert after.total("faultline_leases_acquired_total") == 3
    for name in ("faultline_worker_seconds_total", "faultline_heartbeat_seconds_count"):
        assert after.total(name) >= page.total(name)
    database.open("go")
    database.wait_for_all(2)
    scrape_until(
        port,
        lambda p: (
            p.total("faultline_jobs_succeeded_total", queue="default") == 2
            and p.total("faultline_running_jobs") == 0
            and p.total("faultline_leases_taken_over_total", cause="worker_lost") == 1
            and p.total("faultline_reconciler_leading") == 1
        ),
        "the processes were not added up",
    )


@pytest.mark.slow
def test_the_gauges_of_a_dead_process_are_cleared(fleet: Fleet, database: ObservedDatabase) -> None:
    """Its replacement cannot run: only the dead process's files are left."""
    process, port = supervisor(fleet, "--no-reconciler", "--concurrency", "1")
    held = database.enqueue(jobs.pay, gate="never")
    victim = database.wait_for_mark(held)
    scrape_until(port, lambda p: p.total("faultline_running_jobs") == 1, "it does not run")
    os.kill(victim, signal.SIGKILL)
    process.wait_for_event("process_restarted")
    page = scrape_until(port, lambda p: p.total("faultline_running_jobs") == 0, "it still runs")
    assert page.total("faultline_jobs_claimed_total") == 1


@pytest.mark.slow
def test_the_files_are_gone_when_the_supervisor_is(
    fleet: Fleet, database: ObservedDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process, port = supervisor(fleet)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("faultline-metrics-")]
    scrape(port)
    process.send(signal.SIGTERM)
    assert process.wait() == 0, process.recent_output()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_application_can_use_prometheus_client_for_itself(
    fleet: Fleet, database: ObservedDatabase, processes: str
) -> None:
    fleet.worker("--metrics-port", str(free_port()), "--processes", processes)
    job_id = database.enqueue(jobs.own_metrics)
    database.wait_for_state(job_id)
    query = "SELECT result FROM faultline.ledger WHERE job_id = %s"
    assert database.wait_for_row(query, [job_id], "no result")[0] == [3, "MutexValue", None, False]
