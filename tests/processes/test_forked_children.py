"""A killed worker is noticed at once although a child of its handler lives on.

A forked child inherits every socket. If it kept one of the worker's sessions open, PostgreSQL would
consider the worker alive until the lease expires, which takes ten minutes here.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import pytest

from faultline.task import Task
from faultline_drills.proxy import Proxy
from tests.processes import apps
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase
from tests.slow import slow_unless

LONG_LEASE = ("--lease-seconds", "600")


def assert_noticed_while_the_child_lives(
    fleet: Fleet, database: ObservedDatabase, killed: Process, job_id: UUID
) -> None:
    database.wait_for_mark(job_id)
    child = database.wait_for_mark(job_id, "child")
    other = fleet.started(*LONG_LEASE, name="other")

    killed.kill()

    requeued = other.wait_for_event("lease_reaped", job_id=job_id, token=1)
    assert requeued["cause"] == "worker_lost"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1
    os.kill(child, 0)  # raises if the child has not outlived its parent


@pytest.mark.parametrize("kind", slow_unless(["fork", "multiprocessing", "subprocess"], "fork"))
@pytest.mark.parametrize(
    "task", [apps.leave_a_child, apps.leave_a_child_plain], ids=["async", "plain"]
)
def test_a_child_keeps_no_session_of_its_dead_parent(
    fleet: Fleet, database: ObservedDatabase, task: Task[..., Any], kind: str
) -> None:
    killed = fleet.started(*LONG_LEASE, name="killed")
    killed.wait_for_event("reconciler_leading")
    for service in ("heartbeat", "worker"):
        database.wait_for_session(service)
    job_id = database.enqueue(task, kind=kind, gate="never")

    assert_noticed_while_the_child_lives(fleet, database, killed, job_id)


def test_a_child_forked_while_a_session_is_opened_does_not_keep_it(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy
) -> None:
    proxy.blackhole(application="faultline heartbeat")
    killed = fleet.started(*LONG_LEASE, "--no-reconciler", name="killed", url=proxy.url)
    job_id = database.enqueue(apps.leave_a_child, kind="fork", gate="never")
    database.wait_for_mark(job_id, "child")
    proxy.clear_faults()
    killed.wait_for_event("lease_renewed", job_id=job_id)

    assert_noticed_while_the_child_lives(fleet, database, killed, job_id)
