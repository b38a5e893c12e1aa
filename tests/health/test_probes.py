"""Probes of real processes: busy, blocked, stopped, draining, supervised."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from faultline import embedded
from faultline.postgres.migrate import migrate
from tests.api.served import served
from tests.dashboard.serving import start_inspector
from tests.health.conftest import Probe, probe
from tests.processes import apps
from tests.processes.fifo import make_fifo, unblock
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")
IMPATIENT = ("--stuck-seconds", "2", "--silent-seconds", "3")


def test_a_busy_worker_is_live_and_a_blocked_or_stopped_one_is_not(
    fleet: Fleet, database: ObservedDatabase, health_file: Path, tmp_path: Path, worker_probe: Probe
) -> None:
    options = ("--health-file", str(health_file), "--concurrency", "2", *LONG_LEASE)
    worker = fleet.started(*options, "--drain-seconds", "600")
    database.wait_until(lambda: worker_probe("--ready").code == 0, "it is never ready")

    busy = [database.enqueue(apps.pay, gate="go") for _ in range(2)]
    for job_id in busy:
        database.wait_for_mark(job_id)

    def says(code: int, words: str, *options: str) -> Callable[[], bool]:
        def holds() -> bool:
            answer = worker_probe(*(options or IMPATIENT))
            return answer.code == code and words in answer.line

        return holds

    full = "is alive: 2 of 2 slots are busy"
    database.wait_until(says(0, full), "full is taken for stuck")

    worker.send(signal.SIGSTOP)
    database.wait_until(says(1, "has not reported for"), "a stopped worker is live")
    worker.send(signal.SIGCONT)
    database.wait_until(says(0, full), "it does not come back")
    database.open("go")
    for job_id in busy:
        database.wait_for_state(job_id)

    fifo = make_fifo(tmp_path)
    blocking = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    database.wait_for_mark(blocking)
    database.wait_until(says(1, "a handler has blocked its event loop"), "a blocked worker is live")
    assert worker_probe().code == 0  # a minute is the usual limit
    unblock(database, fifo)
    database.wait_for_state(blocking)
    database.wait_until(says(0, "is alive"), "it does not come back")

    last = database.enqueue(apps.pay, gate="last")
    database.wait_for_mark(last)
    worker.send(signal.SIGTERM)
    database.wait_until(says(1, "is draining", "--ready"), "a draining worker is ready")
    database.wait_until(says(0, "is alive"), "a draining worker is stuck")
    database.open("last")
    assert worker.wait() == 0, worker.recent_output()
    assert not health_file.exists()


@pytest.mark.slow
def test_a_database_that_is_away_is_no_reason_for_a_restart(
    own_server: embedded.Server, health_file: Path, database: ObservedDatabase
) -> None:
    """`database` is on another server: only its `wait_until` is used."""
    own_server.start()
    migrate(own_server.url)
    with ExitStack() as stack:
        fleet = Fleet(own_server.url)
        stack.callback(fleet.end)
        files = [str(health_file.with_name(name)) for name in ("worker", "reconciler")]
        fleet.worker("--health-file", files[0], "--lease-seconds", "1")
        fleet.reconciler("reconciler", "--health-file", files[1])
        inspector = start_inspector(own_server.url)
        stack.callback(inspector.end)
        api = stack.enter_context(served(own_server.url))
        probes = {
            "worker": ("worker", "--health-file", files[0]),
            "reconciler": ("reconciler", "--health-file", files[1]),
            "api": ("api", "--url", api.address),
            "inspector": ("inspector", "--url", inspector.url),
        }

        def ready() -> set[str]:
            return {name for name, words in probes.items() if probe(*words, "--ready").code == 0}

        database.wait_until(lambda: ready() == set(probes), "one is never ready")
        own_server.stop(mode="immediate")
        database.wait_until(lambda: ready() <= {"reconciler"}, "one is ready without a database")
        database.wait_until(
            lambda: "cannot claim" in probe(*probes["worker"], "--ready").line, "it can claim"
        )
        live = {name: probe(*words, "--live") for name, words in probes.items()}
        assert {name for name, answer in live.items() if answer.code == 0} == set(probes), live

        own_server.start()
        database.wait_until(lambda: ready() == set(probes), "one is not ready again")
    assert probe(*probes["api"]).line.startswith(f"{api.address} does not answer: ")
    assert probe(*probes["api"], "--live").code == 1


@pytest.mark.slow
def test_of_several_processes_the_stuck_one_is_named(
    fleet: Fleet, database: ObservedDatabase, health_file: Path, worker_probe: Probe
) -> None:
    supervisor = fleet.worker("--processes", "2", "--health-file", str(health_file), *LONG_LEASE)
    database.wait_until(lambda: worker_probe("--ready").code == 0, "they are never ready")
    assert worker_probe("--ready").line == "2 of 2 processes are ready"
    second = supervisor.wait_for_event("worker_started", times=2)["worker"]
    pid = int(second.split("-")[-2])

    os.kill(pid, signal.SIGSTOP)
    silent = f": worker {second} has not reported"
    database.wait_until(lambda: silent in worker_probe(*IMPATIENT).line, "a stopped one is live")
    assert worker_probe(*IMPATIENT).code == 1
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    supervisor.wait_for_event("process_restarted")
    database.wait_until(lambda: worker_probe("--ready").code == 0, "they are not ready again")

    supervisor.send(signal.SIGTERM)
    assert supervisor.wait() == 0, supervisor.recent_output()
    assert list(health_file.parent.iterdir()) == []
