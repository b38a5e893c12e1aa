"""Jobs of one key keep to their limit while workers die and the limit changes.

Workers are killed during their jobs, jobs fail and are cancelled, and an operator lowers and raises
the limit. A client leaves the transaction of its claim open, so that its places are not yet to be seen.
At every start the number of running jobs of that key must be within the limit of that moment, and at
the end no place may be taken.
"""

from __future__ import annotations

import signal
from contextlib import closing

from faultline.postgres.sessions import connect, run
from faultline.statements import limits, protocol
from faultline_drills.context import DrillContext
from faultline_drills.explorer.limit_rules import (
    LimitChange,
    LimitFacts,
    no_more_run_than_the_limit,
)
from faultline_drills.recording.tables import read_database_state
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

LIMIT = "key:drill"
KEYS = 3
CHANGES = (1, 3, 0)  # of a limit that begins with 2; after 0 it is 2 again
_KILLS = 2


@scenario(
    shows=("kills", "takeovers", "commits", "limit_changes", "open_claims"), breaks_naive=True
)
def concurrency_limit(drill: DrillContext) -> None:
    changes: list[LimitChange] = []
    _set_limit(drill, changes, 2)
    _leave_a_claim_open(drill)
    workers = [drill.started_worker("--concurrency", "8") for _ in range(drill.settings.workers)]
    for round_number in range(len(CHANGES)):
        _submit(drill, round_number)
        _wait_for_commits(drill, 3)
        if round_number < _KILLS:
            victim = workers.pop(0)
            victim.send(signal.SIGKILL)
            victim.kill()
            drill.inject("kill", victim.name)
            workers.append(drill.started_worker("--concurrency", "8"))
        _set_limit(drill, changes, CHANGES[round_number])
        if CHANGES[round_number] == 0:
            _expect_standstill(drill)
            _set_limit(drill, changes, 2)
    _submit(drill, len(CHANGES))
    _cancel_one(drill)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.expect(drill.count("SELECT count(*) FROM faultline.places") == 0, "a place is left")
    drill.expect(drill.count("SELECT count(*) FROM faultline.waiting_jobs") == 0, "a line is left")
    _expect_limits_held(drill, changes)


def _set_limit(drill: DrillContext, changes: list[LimitChange], running: int) -> None:
    """Between the two order numbers, claims may still have seen the former limit."""
    before = drill.count("SELECT nextval('drill.event_order')")
    statement = limits.set_limit(LIMIT, max_running=running, task="drill.pay", argument="number")
    run(drill.conn, statement)
    after = drill.count("SELECT nextval('drill.event_order')")
    former = changes[-1].max_running if changes else running
    changes.append(LimitChange(before, max(former, running)))
    changes.append(LimitChange(after, running))
    if len(changes) > 2:
        drill.inject("limit_change", LIMIT, running=running)


def _submit(drill: DrillContext, round_number: int) -> None:
    """Submit more jobs than can end before the next change; some fail at first."""
    for number in range(drill.settings.jobs * KEYS):
        plan = {"1": "raise@start"} if number % 7 == 3 else None
        key = f"pay-{round_number}-{number}"
        drill.submit(pay, key=key, number=number % KEYS, work_seconds=0.1, plan=plan)


def _leave_a_claim_open(drill: DrillContext) -> None:
    """Claim in a transaction that stays open while another client claims."""
    _submit(drill, len(CHANGES) + 1)
    claim = protocol.claim("clerk", ["default"], batch_size=KEYS, lease_seconds=600)
    with closing(connect(drill.url, application_name="faultline drill clerk")) as other:
        for is_open in (False, True):  # the first claim of a key inserts its state
            with drill.conn.transaction():
                claims = run(drill.conn, claim)
                if is_open:
                    drill.inject("open_claim", "clerk", jobs=len(claims))
                    claims += [each for _ in range(KEYS) for each in run(other, claim)]
            for each in claims:
                run(other, protocol.release(each))


def _wait_for_commits(drill: DrillContext, more: int) -> None:
    done = drill.count("SELECT count(*) FROM faultline.ledger") + more
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") >= done, f"{more} commits"
    )


def _expect_standstill(drill: DrillContext) -> None:
    """With a limit of 0, running jobs end and none starts."""
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.jobs WHERE state = 'running'") == 0,
        "the end of the running jobs",
    )
    run(drill.conn, limits.set_limit(LIMIT, max_running=0))  # again, while workers look for jobs
    drill.expect(drill.count("SELECT count(*) FROM faultline.places") == 0, "a place is taken at 0")


def _cancel_one(drill: DrillContext) -> None:
    waiting = drill.query("SELECT job_id FROM faultline.waiting_jobs ORDER BY job_id LIMIT 1")
    for (job_id,) in waiting:
        run(drill.conn, protocol.cancel(job_id, "drill"))


def _expect_limits_held(drill: DrillContext, changes: list[LimitChange]) -> None:
    state = read_database_state(drill.conn)
    last = max(step.order for step in state.transitions)
    keys = dict(drill.query("SELECT id::text, payload ->> 'number' FROM faultline.jobs"))
    facts = LimitFacts(tuple(changes), until=last, keys=keys)
    for finding in no_more_run_than_the_limit(state.transitions, facts):
        drill.expect(False, finding)
