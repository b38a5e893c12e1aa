"""A recorded commit and this checkout, each with its own code, side by side."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from benchmarks.before_after import BEFORE, REPOSITORY, WORKLOADS, measure, program_of, source_at
from benchmarks.processor_time import of_process, of_server
from benchmarks.servers import PostgresServer


def has_commit(commit: str) -> bool:
    git = shutil.which("git")
    look = [str(git), "-C", str(REPOSITORY), "cat-file", "-e", f"{commit}^{{commit}}"]
    return (
        git is not None and subprocess.run(look, capture_output=True, check=False).returncode == 0
    )


needs_history = pytest.mark.skipif(
    not has_commit(BEFORE), reason="this checkout has no history with the recorded commit"
)


@needs_history
@pytest.mark.slow
@pytest.mark.timeout(300)  # two workers, and six processes that enqueue
def test_both_sides_drain_the_same_jobs_with_their_own_code(server_url: str) -> None:
    server = PostgresServer(server_url, {})
    head, *rows = measure(server, BEFORE, rounds=1, jobs=200)
    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(WORKLOADS)
    assert all(row.count("|") == head.count("|") for row in rows)
    assert all("×" in row for row in rows)


@needs_history
def test_the_source_before_has_none_of_the_features(tmp_path: Path) -> None:
    source = source_at(BEFORE, tmp_path)
    program_of(source)  # refuses another source than this one
    names = {path.name for path in (source / "faultline" / "sql").iterdir()}
    assert "protocol.sql" in names
    assert not names & {"schedules.sql", "places.sql", "unique.sql", "snooze.sql", "progress.sql"}


def test_a_source_that_is_not_the_one_imported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="was imported, not"):
        program_of(tmp_path)


def test_the_time_of_the_server_leaves_out_the_session_that_measures(server_url: str) -> None:
    spend = "SELECT sum(sqrt(n)) FROM generate_series(1, 3000000) AS n"
    with (
        psycopg.connect(server_url, autocommit=True) as measuring,
        psycopg.connect(server_url, autocommit=True) as other,
    ):
        own = of_process(measuring.info.backend_pid)
        before = of_server(measuring)
        other.execute(spend)
        spent = of_server(measuring) - before
        assert spent >= of_process(other.info.backend_pid) * 0.5 > 0
        measuring.execute(spend)
        assert of_process(measuring.info.backend_pid) > own
