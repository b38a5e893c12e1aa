"""Workers declare a keyed limit as they start, all at once, and are killed.

The limit must hold from the first claim on, in all workers together: no account may have more running
jobs than the code says, at any start in the whole history.
"""

from __future__ import annotations

import signal

from faultline_drills.context import DrillContext
from faultline_drills.explorer.limit_rules import (
    LimitChange,
    LimitFacts,
    no_more_run_than_the_limit,
)
from faultline_drills.recording.tables import read_database_state
from faultline_drills.scenario import scenario
from faultline_drills.workload import limited_app

ACCOUNTS = ("ada", "bert")
_WORKERS = 2
_ACCOUNT_OF_JOB = "SELECT id::text, payload ->> 'account' FROM faultline.jobs"


@scenario(shows=("kills", "commits", "declarations"))
def declared_limits(drill: DrillContext) -> None:
    for number in range(drill.settings.jobs * len(ACCOUNTS)):
        account = ACCOUNTS[number % len(ACCOUNTS)]
        drill.submit(limited_app.pay, number=number, account=account, work_seconds=0.1)
    workers = [drill.worker("--concurrency", "8", app=limited_app.APP) for _ in range(_WORKERS)]
    drill.wait_until(
        lambda: all(worker.events_named("worker_started") for worker in workers), "both workers"
    )
    drill.wait_until(lambda: drill.count("SELECT count(*) FROM faultline.ledger") > 0, "a commit")
    # Workers declare before their first claim.
    ((declared,),) = drill.query("SELECT count(*) FROM faultline.limits WHERE declared IS NOT NULL")
    drill.measured["declarations"] = declared
    workers[0].send(signal.SIGKILL)
    workers[0].kill()
    drill.inject("kill", workers[0].name)
    drill.started_worker("--concurrency", "8", app=limited_app.APP)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    state = read_database_state(drill.conn)
    facts = LimitFacts(
        (LimitChange(0, limited_app.MAX_RUNNING),),
        until=max(step.order for step in state.transitions),
        keys=dict(drill.query(_ACCOUNT_OF_JOB)),
    )
    for finding in no_more_run_than_the_limit(state.transitions, facts):
        drill.expect(False, finding)
