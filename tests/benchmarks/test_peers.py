"""Peers that fail are reported, and their processes end."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.check import check_peer
from benchmarks.comparison import run_comparison, turns
from benchmarks.completion import wait_until_finished
from benchmarks.environments import (
    Environment,
    NotInstalled,
    environment_of,
    find_interpreter,
)
from benchmarks.peer import FAULTLINE, PEERS, BadPeer, Peer, load_peer
from benchmarks.processes import Deadline, PeerFailed, Program
from benchmarks.servers import PostgresServer
from benchmarks.trial import TrialServers
from benchmarks.turn_limits import TurnLimits
from benchmarks.workloads import WORKLOADS

DESCRIPTION = """
title = "Stalling peer"
broker = "postgresql"
runtime = "python"
packages = {packages}
settings = "none"
finished = "SELECT 0"
[jobs]
enqueue = 10
single = 10
drain = 10
write = 10
"""
# Its enqueue starts a child process and never ends.
STALLING = """
import pathlib, signal, subprocess, sys
if sys.argv[1] == "enqueue":
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(__file__).with_name("pid").write_text(str(child.pid))
    signal.alarm(600)
    signal.pause()
"""


def make_peer(folder: Path, packages: list[str], program: str = STALLING) -> Peer:
    folder.mkdir(exist_ok=True)
    (folder / "peer.toml").write_text(DESCRIPTION.format(packages=packages))
    (folder / "peer.py").write_text(program)
    return load_peer(folder)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_stalled_peer_is_reported_and_ended_with_its_child_processes(
    tmp_path: Path, server_url: str
) -> None:
    peer = make_peer(tmp_path / "stalling", [])
    environment = Environment(Program((sys.executable, str(peer.program))), {})
    [sample] = run_comparison(
        turns([peer], [WORKLOADS["bulk_enqueue"]], 1, seed=1),
        {"stalling": environment},
        TrialServers(PostgresServer(server_url, {"server_version": "any"}), None),
        scale=1,
        # Includes creating its database and its preparation.
        limits=TurnLimits(fill_seconds=1, measured_seconds=1, timeout_seconds=8),
        on_turn=lambda turn: None,
    )
    assert sample.problem is not None
    assert "took longer than 8 s" in sample.problem
    assert not sample.values
    assert not is_alive(int((peer.folder / "pid").read_text()))


def test_a_stall_is_reported_with_the_number_of_finished_jobs() -> None:
    with pytest.raises(PeerFailed, match="3 of 10"):
        wait_until_finished(lambda: 3, 10, began_ns=0, deadline=Deadline(0.3), check=lambda: None)


@pytest.mark.slow
def test_a_failed_installation_is_reported_with_its_reason(tmp_path: Path) -> None:
    peer = make_peer(tmp_path / "absent", [str(tmp_path / "absent-1.0-py3-none-any.whl")])
    with pytest.raises(NotInstalled, match="absent"):
        environment_of(peer, tmp_path / "environments")


@pytest.mark.slow
def test_a_second_run_installs_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        folder = "tiny-1.0.dist-info"
        archive.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
    peer = make_peer(tmp_path / "tiny", [str(wheel)])
    first = environment_of(peer, tmp_path / "environments")
    wheel.unlink()  # a second installation would fail
    assert environment_of(peer, tmp_path / "environments") == first
    assert os.access(first.program.command[0], os.X_OK)


def test_an_invalid_peer_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    make_peer(tmp_path / "bad", [])
    (tmp_path / "bad" / "peer.py").unlink()
    with pytest.raises(BadPeer, match=r"there is no peer\.py"):
        load_peer(tmp_path / "bad")


def test_the_order_of_the_peers_depends_on_the_seed_and_changes_with_every_workload(
    tmp_path: Path,
) -> None:
    peers = [make_peer(tmp_path / f"peer{number}", []) for number in range(8)]
    workloads = [WORKLOADS["drain"], WORKLOADS["write"]]
    planned = turns(peers, workloads, 3, seed=7)
    assert planned == turns(peers, workloads, 3, seed=7)
    assert planned != turns(peers, workloads, 3, seed=8)
    orders = [tuple(t.peer.name for t in planned[at : at + 8]) for at in range(0, 48, 8)]
    assert len(set(orders)) > 1
    assert all(sorted(order) == sorted(peer.name for peer in peers) for order in orders)


def test_a_check_stops_at_a_peer_that_cannot_prepare(tmp_path: Path, server_url: str) -> None:
    peer = make_peer(tmp_path / "broken", [], program="raise SystemExit('no such table')")
    program = Program((sys.executable, str(peer.program)))
    servers = TrialServers(PostgresServer(server_url, {"server_version": "any"}), None)
    [(what, flaw)] = check_peer(peer, program, servers)
    assert what == "prepare"
    assert flaw == "prepare ended with 1: no such table"


def test_a_peer_runs_on_this_python_unless_it_needs_a_newer_one() -> None:
    assert find_interpreter(None) == sys.executable
    assert find_interpreter(">=3.11") == sys.executable
    assert find_interpreter(">=3.99") is None


@pytest.mark.slow
def test_a_check_expects_the_writes_of_jobs_in_batches(server_url: str) -> None:
    peer = load_peer(PEERS / FAULTLINE)
    servers = TrialServers(PostgresServer(server_url, {"server_version": "any"}), None)
    checks = check_peer(peer, environment_of(peer).program, servers)
    found = dict(check for check in checks if check[0] in ("write_batch", "write_message"))
    assert found == {"write_batch": None, "write_message": None}
