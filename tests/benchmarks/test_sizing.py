"""What a job needs: measured on a real server, and written as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.servers import PostgresServer
from benchmarks.sizing import measure_disk, measure_kind
from benchmarks.sizing_page import KINDS, Cost, Disk, Findings, as_markdown

needs_proc = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs /proc")


def cost(**changed: float) -> Cost:
    values = {
        "server_us": 40.0,
        "worker_us": 20.0,
        "wal_bytes": 1000.0,
        "enqueue_us": 20.0,
        "enqueue_wal_bytes": 500.0,
        "idle_connections": 4.0,
        "connections": 14.0,
    }
    return Cost(**{**values, **changed})


def page() -> str:
    found = Findings(
        costs={
            kind.workload: [cost(), cost(server_us=50.0), cost(server_us=60.0)] for kind in KINDS
        },
        without_pages={kind.workload: cost(wal_bytes=700.0) for kind in KINDS},
        disk=Disk(waiting=800.0, finished=1000.0, ledger=200.0),
        postgres="18.4",
    )
    return as_markdown(found, "python -m benchmarks.sizing", "abc", 200)


def test_the_page_has_each_figure_per_job_per_core_and_per_million() -> None:
    text = page()
    assert "| no-op | 50.0 (40.0–60.0) | 20.0 (20.0–20.0) | 20.0 (20.0–20.0) |" in text
    assert "| 20,000 | 50,000 | 11,111 |" in text  # of 50, 20 and 90 µs
    assert "| no-op | 500 bytes | 700 bytes | 1.20 GB | 1.50 GB |" in text
    assert "| waiting jobs | 800 bytes | 800 MB |" in text
    assert "| none yet | 4 |" in text
    assert text.count("| one INSERT, `job.commit_with` |") == 3
    assert "made by: `python -m benchmarks.sizing`" in text


@needs_proc
@pytest.mark.slow
def test_a_job_with_a_write_costs_processor_time_and_wal(server_url: str) -> None:
    [kind] = [each for each in KINDS if each.workload == "write_message"]
    found = measure_kind(PostgresServer(server_url, {}), kind, jobs=200, payload_bytes=100)
    assert found.server_us > 0
    assert found.worker_us > 0
    assert found.wal_bytes > 200  # a new version of its row, and its entry in the ledger
    assert found.enqueue_wal_bytes > 100  # at least its payload
    assert found.connections >= found.idle_connections > 0


@pytest.mark.slow
def test_waiting_and_finished_jobs_take_room(server_url: str) -> None:
    found = measure_disk(PostgresServer(server_url, {}), jobs=1_000, payload_bytes=100)
    assert found.waiting > 100
    assert found.finished > 100
    assert found.ledger > 50
