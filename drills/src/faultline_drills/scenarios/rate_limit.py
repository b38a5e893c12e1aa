"""Jobs never start faster than the buckets of their rates allow.

A queue, a task and each key have a rate. One worker's clock is an hour ahead, another one's jumps by an
hour while it works, and workers are killed. Over the whole history, no window may hold more starts than
the burst and the rate allow, by the database's clock.
"""

from __future__ import annotations

import signal
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import LiteralString

from faultline.postgres.sessions import run
from faultline.statements import limits
from faultline_drills.clock import missing_requirement, shifted
from faultline_drills.clock.movable import MovableClock
from faultline_drills.context import DrillContext
from faultline_drills.judging.start_rate import StartRate
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay

KEYS = 4
_HOUR_SECONDS = 3_600
_QUEUE, _TASK, _KEY = "queue:paced", "task:drill.pay", "key:drill"
# Of a client that knows its clock: the control refills its buckets by it.
_AHEAD = f"-c drill.seconds_ahead={_HOUR_SECONDS}"
_STARTS: LiteralString = """
    SELECT extract(epoch FROM t.at)::float8, j.queue, j.task, j.payload ->> 'number'
    FROM drill.transitions AS t JOIN faultline.jobs AS j ON j.id = t.job_id
    WHERE t.before = 'queued' AND t.after = 'running' ORDER BY t.at
"""
_COMMITS: LiteralString = "SELECT count(*) FROM faultline.ledger"


RATES = {_QUEUE: StartRate(40, 3), _TASK: StartRate(30, 2), _KEY: StartRate(10, 1)}


@scenario(
    shows=("kills", "clock_jumps", "clock_shifts", "commits"),
    breaks_naive=True,
    missing_requirement=missing_requirement,
)
def rate_limit(drill: DrillContext) -> None:
    for name, rate in RATES.items():
        _set_rate(drill, name, rate)
    folder = drill.stack.enter_context(tempfile.TemporaryDirectory(prefix="faultline-clock-"))
    jumping, ahead = Path(folder, "jumping"), Path(folder, "ahead")
    for each in (jumping, ahead):
        each.mkdir()
    clock = MovableClock(jumping)
    served = ("--queues", "default,paced", "--concurrency", "8")
    victim = drill.started_worker(*served)
    jumper = drill.started_worker(*served, environment=clock.environment)
    environment = {**shifted(_HOUR_SECONDS, ahead), "PGOPTIONS": _AHEAD}
    drill.started_worker(*served, name="ahead", environment=environment)
    drill.inject("clock_shift", "ahead", seconds=_HOUR_SECONDS)
    jobs = _submit(drill)  # one by one, while all workers look for jobs
    drill.wait_until(lambda: drill.count(_COMMITS) > jobs // 4, "some commits")
    clock.move(_HOUR_SECONDS)
    drill.inject("clock_jump", jumper.name, seconds=_HOUR_SECONDS)
    victim.send(signal.SIGKILL)
    victim.kill()
    drill.inject("kill", victim.name)
    drill.wait_until(lambda: drill.count(_COMMITS) > jobs // 2, "more commits")
    clock.move(-_HOUR_SECONDS)
    drill.inject("clock_jump", jumper.name, seconds=-_HOUR_SECONDS)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    _expect_rates_held(drill)


def _set_rate(drill: DrillContext, name: str, rate: StartRate) -> None:
    task, argument = ("drill.pay", "number") if name == _KEY else (None, None)
    statement = limits.set_limit(
        name,
        rate_jobs=rate.jobs_per_second,
        rate_seconds=1.0,
        burst=rate.burst,
        task=task,
        argument=argument,
    )
    run(drill.conn, statement)


def _submit(drill: DrillContext) -> int:
    """Submit jobs under the queue's rate, under those of task and key, and under all."""
    jobs = drill.settings.jobs * 6
    for number in range(jobs):
        if number % 3 == 0:
            drill.submit(note, queue="paced", number=number % KEYS)
        else:
            queue = "paced" if number % 3 == 1 else None
            drill.submit(pay, queue=queue, key=f"pay-{number}", number=number % KEYS)
    return jobs


def _expect_rates_held(drill: DrillContext) -> None:
    starts: dict[tuple[str, str], list[float]] = defaultdict(list)
    for at, queue, task, number in drill.query(_STARTS):
        if f"queue:{queue}" == _QUEUE:
            starts[_QUEUE, queue].append(at)
        if f"task:{task}" == _TASK:
            starts[_TASK, task].append(at)
            starts[_KEY, number].append(at)
    drill.measured["paced_starts"] = sum(map(len, starts.values()))
    for (name, key), times in starts.items():
        if found := RATES[name].exceeded(times):
            drill.expect(False, f"{name} ({key}): {found}")
