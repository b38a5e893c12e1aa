"""A buried job keeps its place and its history; when its cause is repaired, it can be run again."""

from __future__ import annotations

from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.failure_modes import apps
from tests.failure_modes.bare_worker import MAX_ATTEMPTS, forget_the_lease
from tests.failure_modes.crew import Crew
from tests.processes.stage import Stage
from tests.races.stepper import claim_as


def test_a_buried_job_runs_again_when_an_operator_says_so(crew: Crew, stage: Stage) -> None:
    job_id = stage.enqueue(apps.kill_the_worker)
    for _ in range(MAX_ATTEMPTS):
        assert len(run(stage.conn, claim_as("lost"))) == 1
        forget_the_lease(stage)
        run(stage.conn, protocol.reconcile(max_jobs=1))
    assert stage.job(job_id) == ("failed", MAX_ATTEMPTS, "poison", MAX_ATTEMPTS)
    assert run(stage.conn, claim_as("nobody")) == []

    stage.open("repaired")
    assert run(stage.conn, protocol.retry(job_id)) == "queued"

    crew.started("--lease-seconds", "600")
    assert stage.wait_for_state(job_id) == ("succeeded", 1, None, MAX_ATTEMPTS + 1)
    assert stage.outcomes(job_id) == ["expired", "expired", "retried"]
    assert stage.payments(job_id) == 1
    stage.assert_in_order()
