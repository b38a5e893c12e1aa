"""Heartbeats have their own thread and session: a blocked loop keeps its leases.

It keeps them for `--stall-seconds`; tests/processes/test_blocked_loop.py tests what happens then.
"""

from __future__ import annotations

from pathlib import Path

from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.processes import apps
from tests.processes.fifo import make_fifo, unblock
from tests.processes.observed_database import ObservedDatabase

LEASE = ("--lease-seconds", "3")
LONGER_THAN_A_LEASE = 5  # renewals: there are four to a lease


def test_a_worker_whose_loop_is_blocked_for_longer_than_its_lease_keeps_it(
    fleet: FailureModeFleet, database: ObservedDatabase, home: Path
) -> None:
    fifo = make_fifo(home)
    job_id = database.enqueue(apps.block_the_loop, fifo=str(fifo))
    long_stall = ("--no-self-fencing", "--stall-seconds", "600")
    blocked = fleet.started(*LEASE, *long_stall, name="blocked")
    database.wait_for_mark(job_id)
    other = fleet.started(*LEASE, name="other")
    so_far = len(blocked.events_named("lease_renewed"))
    blocked.wait_for_event("lease_renewed", job_id=job_id, times=so_far + LONGER_THAN_A_LEASE)

    unblock(database, fifo)

    blocked.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1
    assert not other.events_named("lease_reaped")
    database.assert_in_order()
