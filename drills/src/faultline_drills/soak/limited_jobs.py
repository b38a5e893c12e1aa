"""Jobs under a limit with many keys, judged by the whole history of a soak.

Half of them have one of two keys, so that jobs wait; the others are spread over all keys.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from faultline.postgres.sessions import run
from faultline.statements import limits
from faultline.task import Task
from faultline_drills.context import DrillContext
from faultline_drills.explorer.limit_rules import (
    LimitChange,
    LimitFacts,
    no_more_run_than_the_limit,
)
from faultline_drills.recording.database_state import DatabaseState
from faultline_drills.workload.tasks import pay_account

MAX_RUNNING = 2
_LIMIT = "key:soak"
_BUSY_KEYS = 2
_KEYS = (
    "SELECT id::text, payload ->> 'account' FROM faultline.jobs WHERE task = 'drill.pay_account'"
)
_LEFT = (
    "SELECT (SELECT count(*) FROM faultline.places) + (SELECT count(*) FROM faultline.waiting_jobs)"
)
_SHOWN = 5


def set_limit(drill: DrillContext) -> None:
    statement = limits.set_limit(
        _LIMIT, max_running=MAX_RUNNING, task=pay_account.name, argument="account"
    )
    run(drill.conn, statement)


def draw_account(rng: random.Random, keys: int) -> tuple[Task[Any, Any], dict[str, Any]]:
    """A job, and the arguments that only it has."""
    busy = rng.random() < 0.5
    account = rng.randrange(min(_BUSY_KEYS, keys) if busy else keys)
    return pay_account, {"account": account, "work_seconds": round(rng.uniform(0.2, 1.2), 2)}


def wait_until_free(drill: DrillContext) -> None:
    """Wait until the last places and lines are gone, by the repair if need be."""
    drill.wait_until(lambda: drill.count(_LEFT) == 0, "the end of all places and lines")


def judge_limit(drill: DrillContext, state: DatabaseState) -> None:
    """Expect that no key had more leases than its limit, at any moment."""
    keys = dict(drill.query(_KEYS))
    steps = [step for step in state.transitions if step.job in keys]
    last = max((step.order for step in steps), default=0)
    facts = LimitFacts((LimitChange(0, MAX_RUNNING),), until=last, keys=keys)
    for finding in [*no_more_run_than_the_limit(steps, facts)][:_SHOWN]:
        drill.expect(False, finding)
    running: defaultdict[str, set[str]] = defaultdict(set)
    waits = 0
    for step in sorted(steps, key=lambda each: each.order):
        key = keys[step.job]
        if step.after == "running":
            running[key].add(step.job)
            continue
        running[key].discard(step.job)
        waits += step.after == "queued" and len(running[key]) >= MAX_RUNNING
    drill.measured["limited_keys"] = len(set(keys.values()))
    drill.measured["limited_waits"] = waits  # jobs that were queued while their key was full
