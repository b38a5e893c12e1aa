"""Recovery of peers: one that uses PostgreSQL's locks, and some without any."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.peer import Peer, load_peer
from benchmarks.peer_recovery import PeerRecovery, kill_once, measure_peer
from benchmarks.processes import PeerFailed, Program
from benchmarks.recovery import as_section
from benchmarks.servers import PostgresServer
from benchmarks.trial import TrialServers

DESCRIPTION = """
title = "Latch"
broker = "postgresql"
runtime = "python"
settings = "none"
finished = "SELECT 0"
recovery = "a lock of a session"
[jobs]
enqueue = 1
single = 1
drain = 1
write = 1
"""
# Its only job is a lock, which PostgreSQL releases when the session dies.
LATCH = """
import json, os, signal, sys, time
signal.alarm(600)
import psycopg
if sys.argv[1] == "enqueue":
    print(json.dumps({"jobs": 1, "seconds": 0.1}))
if sys.argv[1] == "work":
    assert os.environ["BENCH_WORKLOAD"] == "recovery"
    with psycopg.connect(os.environ["BENCH_URL"], autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(1)")
        print(json.dumps({"held_ns": time.monotonic_ns(), "n": 0}), flush=True)
        signal.pause()
"""
# The first worker inserts a row; no worker takes over its job.
WITHOUT_RECOVERY = (
    LATCH.replace("{", "{{")
    .replace("}", "}}")
    .replace(
        'conn.execute("SELECT pg_advisory_lock(1)")',
        'conn.execute("CREATE TABLE IF NOT EXISTS mark (pid int)")\n'
        '        if conn.execute("SELECT 1 FROM mark").fetchone():\n'
        "            {otherwise}\n"
        '        conn.execute("INSERT INTO mark VALUES (1)")',
    )
)


def make_peer(folder: Path, program: str) -> tuple[Peer, Program]:
    folder.mkdir()
    (folder / "peer.toml").write_text(DESCRIPTION)
    (folder / "peer.py").write_text(program)
    peer = load_peer(folder)
    return peer, Program((sys.executable, str(peer.program)))


@pytest.fixture
def servers(server_url: str) -> TrialServers:
    return TrialServers(PostgresServer(server_url, {"server_version": "any"}), None)


def test_the_time_ends_when_the_second_worker_reports_that_it_holds_the_job(
    tmp_path: Path, servers: TrialServers
) -> None:
    peer, program = make_peer(tmp_path / "latch", LATCH)
    seconds = kill_once(servers, peer, program, pause_seconds=1.0, bound_seconds=60)
    assert seconds is not None
    assert seconds > 0


@pytest.mark.slow
def test_a_job_that_no_worker_takes_over_is_reported_as_not_within_the_bound(
    tmp_path: Path, servers: TrialServers
) -> None:
    peer, program = make_peer(
        tmp_path / "idle", WITHOUT_RECOVERY.format(otherwise="signal.pause()")
    )
    assert kill_once(servers, peer, program, pause_seconds=1.0, bound_seconds=1.0) is None


@pytest.mark.slow
def test_a_second_worker_that_ends_is_a_failure_and_not_a_timeout(
    tmp_path: Path, servers: TrialServers
) -> None:
    broken = WITHOUT_RECOVERY.format(otherwise="raise SystemExit('out of order')")
    peer, program = make_peer(tmp_path / "broken", broken)
    with pytest.raises(PeerFailed, match="out of order"):
        kill_once(servers, peer, program, pause_seconds=1.0, bound_seconds=60.0)


@pytest.mark.slow
def test_a_job_that_runs_in_two_workers_at_once_is_no_recovery(
    tmp_path: Path, servers: TrialServers
) -> None:
    """The second worker held the job before the kill, even if it reports it later."""
    program = LATCH.replace('conn.execute("SELECT pg_advisory_lock(1)")', "pass")
    peer, command = make_peer(
        tmp_path / "twice", program.replace("time.monotonic_ns()", str(time.monotonic_ns()))
    )
    with pytest.raises(PeerFailed, match="while the first one was alive"):
        kill_once(servers, peer, command, pause_seconds=0.1, bound_seconds=60.0)


def test_a_peer_that_cannot_prepare_has_a_problem_instead_of_figures(
    tmp_path: Path, servers: TrialServers
) -> None:
    peer, program = make_peer(tmp_path / "absent", "raise SystemExit('no such table')")
    found = measure_peer(servers, peer, program, seed=1, kills=2)
    assert not found.seconds
    assert found.problem == "prepare ended with 1: no such table"


def test_a_time_beyond_the_bound_counts_as_the_longest(tmp_path: Path) -> None:
    peer, _ = make_peer(tmp_path / "latch", LATCH)
    found = PeerRecovery(peer, [30.0, None, 40.0])
    assert (found.median, found.longest) == (40.0, None)
    assert PeerRecovery(peer, [30.0, None, None]).median is None
    assert found.facts()["seconds"] == [30.0, None, 40.0]


def test_the_table_lists_peers_with_their_number_of_kills(tmp_path: Path) -> None:
    peer, _ = make_peer(tmp_path / "latch", LATCH)
    found = [
        PeerRecovery(peer, [30.0, 31.0, None]),
        PeerRecovery(peer, [], problem="no such table"),
    ]
    section = as_section([0.2, 0.4], [9.0, 10.0], found)
    assert "| Latch | SIGKILL | 3 | 31.0 | – | not within 150 s |" in section.markdown
    assert "| Latch | SIGKILL | 0 | failed: no such table | – | – |" in section.markdown
    assert "Latch: a lock of a session" in section.markdown
    assert section.json["peers"]["latch"]["problem"] == "no such table"
    alone = as_section([0.2, 0.4], [9.0, 10.0], [])
    assert "Latch" not in alone.markdown
