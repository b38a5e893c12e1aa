"""A worker that hears nothing looks into the ledger, finds its own entry, and calls it success."""

from __future__ import annotations

from faultline_drills.proxy import Proxy
from tests.failure_modes.blind_client import AT_COMMIT
from tests.failure_modes.crew import Crew
from tests.processes import apps
from tests.processes.stage import Stage


def test_a_worker_whose_answer_was_lost_finds_its_commit_in_the_ledger(
    crew: Crew, stage: Stage, proxy: Proxy
) -> None:
    worker = crew.started("--lease-seconds", "600", url=proxy.url)
    with stage.held_back(AT_COMMIT):
        job_id = stage.enqueue(apps.pay)
        connection = proxy.connection_of(port_at_server=stage.port_of(stage.wait_until_held()))
        connection.drop_replies()
    stage.wait_for_state(job_id)
    connection.close()

    worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert stage.job(job_id)[:2] == ("succeeded", 1)
    assert stage.payments(job_id) == 1
    stage.assert_in_order()
