"""The usual runs fit into their time, and have a figure for every goal."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.__main__ import plan_of
from benchmarks.comparison import Turn, run_comparison, turns
from benchmarks.comparison_goals import BEST, BEST_POSTGRESQL, BEST_PYTHON, COMPARISON_GOALS
from benchmarks.completion import wait_until_finished
from benchmarks.display import Pace
from benchmarks.environments import Environment
from benchmarks.peer import FAULTLINE, Peer, load_peer
from benchmarks.plan import MINUTES, REPEATS, SHORT_MINUTES, Plan
from benchmarks.processes import Deadline, Program
from benchmarks.section import ONLY_WITH_ALL, SECTIONS
from benchmarks.selection import EVERYTHING
from benchmarks.servers import PostgresServer
from benchmarks.trial import TrialServers
from benchmarks.turn_limits import TurnLimits
from benchmarks.workloads import MEASURES, WORKLOADS
from tests.slow import slow_unless

# The short form leaves this for the first installation of its peers.
INSTALLATION_SECONDS = 40.0
ANY_BEST = (BEST, BEST_PYTHON, BEST_POSTGRESQL)
# Faultline is so far ahead of these that one value says enough.
ONCE = ("procrastinate", "celery")


def taken(plan: Plan) -> list[Turn]:
    return plan.turns(plan.peers)


def test_the_usual_run_takes_less_than_40_minutes_with_all_peers() -> None:
    plan = plan_of(seed=1)
    assert plan.budget_seconds(taken(plan)) < MINUTES * 60
    assert plan.minutes == MINUTES == 40
    assert plan.repeats == REPEATS == 5
    assert plan.scale == 1.0
    assert plan.comparison_seconds >= plan.turns_seconds(taken(plan))


def test_the_short_run_takes_less_than_4_minutes_with_the_installation_of_its_peers() -> None:
    plan = plan_of(seed=1, short=True)
    assert plan.budget_seconds(taken(plan)) < SHORT_MINUTES * 60 - INSTALLATION_SECONDS
    assert plan.minutes == SHORT_MINUTES == 4


def test_the_usual_run_measures_both_sides_of_every_goal_in_every_repeat() -> None:
    repeats: dict[tuple[str, str], int] = {}
    plan = plan_of(seed=1)
    for turn in taken(plan):
        for measure in turn.workload.measures:
            key = (measure.name, turn.peer.name)
            repeats[key] = repeats.get(key, 0) + 1
    for measure, against, _ in COMPARISON_GOALS:
        assert repeats[measure, FAULTLINE] == REPEATS
        theirs = MEASURES[measure].compared_with or measure
        if against in ANY_BEST:
            often = [p for (name, p), n in repeats.items() if name == theirs and n == REPEATS]
            assert len(often) >= 3, measure
        else:
            assert repeats[theirs, against] == (1 if against in ONCE else REPEATS)


def test_every_peer_is_in_the_usual_run_and_every_workload_in_the_whole_one() -> None:
    usual, whole = plan_of(seed=1), plan_of(seed=1, everything=True)
    assert {turn.peer.name for turn in taken(usual)} == {peer.name for peer in usual.peers}
    assert {turn.workload.name for turn in taken(whole)} == set(WORKLOADS)
    assert whole.selection is EVERYTHING
    assert whole.minutes is None
    assert set(whole.sections) - set(usual.sections) == set(ONLY_WITH_ALL)
    assert set(usual.left_out) == set(WORKLOADS) - {w.name for w in usual.workloads}


def test_peers_and_workloads_that_are_named_run_in_every_repeat_without_a_time_limit() -> None:
    plan = plan_of(seed=1, chosen_peers="celery", chosen_workloads="drain,retries", repeats=2)
    found = {(t.peer.name, t.workload.name, t.repeat) for t in taken(plan)}
    assert {("celery", "drain", 1), ("celery", "retries", 1)} <= found
    assert plan.minutes is None
    assert plan.limits.measured_seconds > plan_of(seed=1).limits.measured_seconds


def test_the_plan_says_how_long_it_takes() -> None:
    plan = plan_of(seed=1)
    lines = plan.describe(taken(plan))
    assert f"{len(taken(plan))} turns of {len(plan.peers)} queues" in lines[0]
    assert [name for name in SECTIONS if any(f"section {name}:" in line for line in lines)] == list(
        plan.sections
    )
    assert f"{plan.budget_seconds(taken(plan)) / 60:.0f} min" in lines[-1]


def test_workloads_that_are_compared_with_each_other_take_turns() -> None:
    plan = plan_of(seed=3)
    [single] = [at for at, t in enumerate(taken(plan)) if _is(t, "write_message", 1)]
    beside = [at for at, t in enumerate(taken(plan)) if _is(t, "write_each", 1)]
    positions = sorted([single, *beside])
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    orders = {
        [t.workload.name for t in taken(plan_of(seed=seed)) if t.repeat == 1].index("write_message")
        for seed in range(8)
    }
    assert len(orders) > 1


def _is(turn: Turn, workload: str, repeat: int) -> bool:
    return (turn.workload.name, turn.repeat) == (workload, repeat)


def test_the_time_left_is_that_of_the_sections_after_the_last_turn() -> None:
    pace = Pace(20.0, seconds_after=7.0)
    assert pace.left_after(10.0) >= 7.0
    assert pace.left_after(10.0) == 7.0


def test_a_drain_is_measured_by_what_was_finished_at_its_limit() -> None:
    finished = wait_until_finished(
        lambda: 3,
        10,
        began_ns=time.monotonic_ns(),
        deadline=Deadline(60),
        check=lambda: None,
        limit_seconds=0.01,
    )
    assert finished.jobs == 3
    assert finished.at_ns <= time.monotonic_ns()


DESCRIPTION = """
title = "Endless peer"
broker = "postgresql"
runtime = "python"
packages = []
settings = "none"
finished = "SELECT count(*) FROM jobs WHERE done"
[jobs]
enqueue = 1_000_000_000
single = 1_000_000_000
drain = 1_000_000_000
write = 1_000_000_000
"""
PROGRAM = """
import os, sys
import psycopg
sys.path.insert(0, {peers!r})
import roles

def prepare(url):
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TABLE jobs (n bigint PRIMARY KEY, done bool DEFAULT false)")

async def enqueue(url, asked):
    with psycopg.connect(url, autocommit=True) as conn:
        def many(payloads):
            numbers = [payload["n"] for payload in payloads]
            conn.execute("INSERT INTO jobs SELECT unnest(%s::bigint[])", [numbers])
        await roles.send(asked, lambda payload: many([payload]), many)

def work(url, concurrency):
    with psycopg.connect(url, autocommit=True) as conn:
        number = 0
        while True:
            if conn.execute("UPDATE jobs SET done = true WHERE n = %s", [number]).rowcount:
                roles.note_start({{"n": number}})
                number += 1

roles.main(prepare=prepare, enqueue=enqueue, work=work)
"""


def endless_peer(folder: Path) -> tuple[Peer, Environment]:
    """A peer that would need hours for the jobs of its peer.toml."""
    folder.mkdir()
    peers = str(Path(__file__).parents[2] / "benchmarks" / "peers")
    (folder / "peer.toml").write_text(DESCRIPTION)
    (folder / "peer.py").write_text(PROGRAM.format(peers=peers))
    peer = load_peer(folder)
    return peer, Environment(Program((sys.executable, str(peer.program))), {})


@pytest.mark.parametrize(
    "workload", slow_unless(["bulk_enqueue", "single_enqueue", "drain"], "drain")
)
def test_a_turn_is_stopped_at_its_limits_and_has_a_figure(
    tmp_path: Path, server_url: str, workload: str
) -> None:
    peer, environment = endless_peer(tmp_path / "endless")
    [sample] = run_comparison(
        turns([peer], [WORKLOADS[workload]], 1, seed=1),
        {"endless": environment},
        TrialServers(PostgresServer(server_url, {"server_version": "any"}), None),
        scale=1,
        limits=TurnLimits(fill_seconds=0.05, measured_seconds=0.05, timeout_seconds=60),
        on_turn=lambda turn: None,
    )
    assert sample.problem is None
    assert sample.seconds is not None
    assert 0 < sample.jobs < peer.jobs["drain"]
    assert sample.values[workload] == pytest.approx(sample.jobs / sample.seconds)


def test_no_turn_begins_that_would_end_after_the_time_of_the_run(tmp_path: Path) -> None:
    peer, environment = endless_peer(tmp_path / "endless")
    limits = TurnLimits(fill_seconds=1, measured_seconds=1, timeout_seconds=60)
    found = run_comparison(
        turns([peer], [WORKLOADS["drain"]], 3, seed=1),
        {"endless": environment},
        TrialServers(PostgresServer("postgresql://nowhere", {}), None),
        scale=1,
        limits=limits,
        on_turn=lambda turn: pytest.fail("a turn began"),
        until=time.monotonic() + WORKLOADS["drain"].budget_seconds(limits) - 0.5,
    )
    assert list(found) == []
