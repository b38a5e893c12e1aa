"""The endpoint itself: who may have the port, and what it answers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.metrics import jobs
from tests.metrics.scraping import fetch, free_port, scrape, scrape_until, taken_port
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase


@pytest.mark.parametrize(
    "command",
    [["worker"], ["worker", "--processes", "2"], ["reconciler"]],
    ids=["worker", "supervisor", "reconciler"],
)
def test_a_port_that_is_taken_is_an_error_at_once(
    fleet: Fleet, database: ObservedDatabase, command: list[str]
) -> None:
    with taken_port() as port:
        process = fleet._start("refused", None, [*command, "--metrics-port", str(port)])
        assert process.wait() == 1
    output = "\n".join(process.stray_lines)
    assert "[port_unavailable]" in output
    assert str(port) in output
    assert "--metrics-port" in output
    assert "Traceback" not in output
    assert not process.events_named("worker_started")


def test_a_host_that_does_not_resolve_is_an_error_at_once(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    options = ["--metrics-port", str(free_port()), "--metrics-host", "no.such.host.invalid"]
    process = fleet._start("refused", None, ["worker", *options])
    assert process.wait() == 1
    assert "[port_unavailable]" in "\n".join(process.stray_lines)


def test_the_page_can_be_had_in_both_formats(fleet: Fleet, database: ObservedDatabase) -> None:
    port = free_port()
    fleet.started("--metrics-port", str(port))
    for accept, kind in (
        ("text/plain", "text/plain"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
    ):
        found, body = fetch(port, "?name[]=faultline_build_info", accept)
        assert found.startswith(kind)
        assert "faultline_build_info{" in body
        assert "faultline_workers" not in body  # the query asked for one name


@pytest.mark.skipif(sys.platform != "linux", reason="looks for its sockets in /proc")
def test_a_worker_that_is_not_asked_to_serves_nothing(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    silent = fleet.started("--no-reconciler", name="silent")
    serving = fleet.started("--metrics-port", str(free_port()), name="serving")
    assert len(listening(serving.pid)) == 1
    assert not listening(silent.pid)


def listening(pid: int) -> set[str]:
    """The sockets on which a process waits for connections."""
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    waiting = {f"socket:[{row.split()[9]}]" for row in table if row.split()[3] == "0A"}
    links = (os.path.realpath(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return waiting & {Path(link).name for link in links}


def test_a_forked_child_neither_counts_nor_keeps_the_port(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    port = free_port()
    first = fleet.started("--metrics-port", str(port), "--lease-seconds", "600", name="first")
    job_id = database.enqueue(jobs.counts_in_a_forked_child)
    database.wait_for_state(job_id)
    query = "SELECT result FROM faultline.ledger WHERE job_id = %s"
    assert database.wait_for_row(query, [job_id], "no result")[0] is False

    orphaned = database.enqueue(jobs.leave_a_child, kind="fork", gate="never")
    database.wait_for_mark(orphaned, "child")
    first.kill()
    second = fleet.started("--metrics-port", str(port), name="second")
    scrape_until(port, lambda p: p.families, "the second worker does not serve")
    assert second.is_alive


def test_a_stopping_worker_serves_until_it_has_stopped(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    port = free_port()
    process = fleet.started("--metrics-port", str(port))
    database.enqueue(jobs.hold, gate="go")
    scrape_until(port, lambda page: page.total("faultline_running_jobs") == 1, "it does not run")
    process.send(signal.SIGTERM)
    process.wait_for_event("worker_draining")
    assert scrape(port).total("faultline_running_jobs") == 1
    database.open("go")
    assert process.wait() == 0
    with pytest.raises(OSError, match="refused"):
        scrape(port)
