"""A worker without a reply finds its own ledger entry, and reports success."""

from __future__ import annotations

from faultline_drills.proxy import Proxy
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.failure_modes.repeating_client import AT_COMMIT
from tests.processes import apps
from tests.processes.observed_database import ObservedDatabase


def test_a_worker_whose_reply_was_lost_finds_its_commit_in_the_ledger(
    fleet: FailureModeFleet, database: ObservedDatabase, proxy: Proxy
) -> None:
    worker = fleet.started("--lease-seconds", "600", url=proxy.url)
    with database.held_back(AT_COMMIT):
        job_id = database.enqueue(apps.pay)
        connection = proxy.connection_of(
            port_at_server=database.port_of(database.wait_until_held())
        )
        connection.drop_replies()
    database.wait_for_state(job_id)
    connection.close()

    worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1
    database.assert_in_order()
