"""Fifty operators retry one dead job at once, until it has succeeded.

Producers submit it again meanwhile, under its key. Only a failed job changes by a retry, under its
row's lock: of fifty retries one must count, the others find the job queued or running, and none may
give it more attempts than it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from faultline.errors import IllegalTransition
from faultline.postgres.sessions import Connection, run
from faultline.statements import protocol
from faultline_drills.clients.concurrent_sessions import run_concurrently
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.waiting import POLL_SECONDS
from faultline_drills.workload.tasks import pay_or_die

OPERATORS = 50
DEATHS = 3  # how often the job fails for good before it succeeds
KEY = "contested"


@scenario(shows=("deaths", "storms", "retries", "commits"))
def retry_storm(drill: DrillContext) -> None:
    tokens = range(1, DEATHS * pay_or_die.settings.max_attempts + 1)
    plan = {str(token): "raise@start" for token in tokens}
    job = drill.submit(pay_or_die, key=KEY, number=1, plan=plan)
    for _ in range(drill.settings.workers):
        # A long lease: heartbeats may be late in a storm, and an expired lease would add a run.
        drill.worker("--lease-seconds", "600")
    drill.wait_for_state(job, "failed")
    operators = [_operator(drill, job, who) for who in range(OPERATORS)]
    producers = [_producer(drill, job, plan, who) for who in range(5)]
    retries = sum(run_concurrently(drill, operators + producers))
    drill.inject("storm", str(job), count=retries)
    _expect_one_retry_per_death(drill, job)


def _operator(drill: DrillContext, job: UUID, who: int) -> Callable[[Connection], int]:
    def retry(conn: Connection) -> int:
        deadline = time.monotonic() + drill.settings.timeout_seconds
        retries = 0
        while time.monotonic() < deadline:
            operation = drill.history.invoke(f"operator-{who}", Verb.RETRY, job=str(job))
            try:
                state = run(conn, protocol.retry(job))
            except IllegalTransition:  # the job has succeeded, which is final
                drill.history.end(operation, Phase.FAIL)
                return retries
            drill.history.end(operation, Phase.OK, state=state)
            retries += 1
            time.sleep(POLL_SECONDS)
        drill.expect(False, "the job did not succeed")
        return retries

    return retry


def _producer(
    drill: DrillContext, job: UUID, plan: dict[str, str], who: int
) -> Callable[[Connection], int]:
    def submit(conn: Connection) -> int:
        for _ in range(10):
            operation = drill.history.invoke(f"producer-{who}", Verb.SUBMIT, key=KEY)
            answer = pay_or_die.options(idempotency_key=KEY, conn=conn).enqueue(number=1, plan=plan)
            drill.history.end(operation, Phase.OK, job=str(answer.job_id), key=KEY)
            drill.expect(answer.existing and answer.job_id == job, "a second job was created")
            time.sleep(POLL_SECONDS)
        return 0

    return submit


def _expect_one_retry_per_death(drill: DrillContext, job: UUID) -> None:
    deaths = drill.query(
        "SELECT token FROM drill.transitions WHERE job_id = %s AND before = 'running' AND after = 'failed'",
        [job],
    )
    for (token,) in deaths:
        drill.inject("death", str(job), under=token)
    moved = drill.count(
        "SELECT count(*) FROM faultline.attempts_log WHERE job_id = %s AND outcome = 'retried'",
        [job],
    )
    drill.expect(moved == len(deaths), f"{moved} retries took effect for {len(deaths)} deaths")
    token = drill.count("SELECT fencing_token FROM faultline.jobs WHERE id = %s", [job])
    runs = DEATHS * pay_or_die.settings.max_attempts + 1
    drill.expect(token == runs, f"the job ran {token} times, not {runs}")
