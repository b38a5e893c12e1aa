"""A worker never holds more jobs of a queue than the queue has slots.

Jobs of a busy queue and of two others are due at once, some fail and are retried, and the worker is
killed and replaced. At every start, counted for each worker, the running jobs of a queue must be within
its slots, and the queues with free slots must not wait for the busy one.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from typing import LiteralString

from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

SLOTS = {"bulk": 2, "mail": 1}
_REST = 3  # of all other queues together
_OTHER = "default"
_LEASES: LiteralString = """
    SELECT j.id::text, t.after, j.queue, a.worker
    FROM drill.transitions AS t JOIN faultline.jobs AS j ON j.id = t.job_id
    LEFT JOIN drill.lease_workers AS a ON a.lease_id = t.lease_id
    ORDER BY t.order_number
"""
# Which worker got a lease; the job's row names only the last one.
_LEASE_WORKERS: LiteralString = """
    CREATE TABLE drill.lease_workers (lease_id uuid PRIMARY KEY, worker text);
    CREATE FUNCTION drill.record_lease() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        INSERT INTO drill.lease_workers VALUES (NEW.lease_id, NEW.lease_owner) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$;
    CREATE TRIGGER record_lease AFTER UPDATE ON faultline.jobs
    FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION drill.record_lease()
"""
_COMMITS: LiteralString = """
    SELECT count(*) FROM faultline.jobs WHERE state = 'succeeded' AND queue = %s
"""


@scenario(shows=("kills", "retries", "commits", "full_queues"))
def queue_slots(drill: DrillContext) -> None:
    drill.conn.execute(_LEASE_WORKERS)
    queues = [*SLOTS, _OTHER]
    for number in range(drill.settings.jobs * len(queues)):
        plan = {"1": "raise@half"} if number % 5 == 0 else None
        queue = queues[number % len(queues)]
        drill.submit(pay, queue=queue, number=number, work_seconds=0.05, plan=plan)
    slots = ",".join(f"{queue}:{number}" for queue, number in SLOTS.items())
    options = ("--queues", f"{slots},*:{_REST}", "--concurrency", "6")
    worker = drill.started_worker(*options)
    drill.wait_until(lambda: drill.count(_COMMITS, ["bulk"]) > 1, "commits of the busy queue")
    worker.send(signal.SIGKILL)
    worker.kill()
    drill.inject("kill", worker.name)
    drill.started_worker(*options)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    _expect_slots_held(drill)


def _expect_slots_held(drill: DrillContext) -> None:
    held: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    running: dict[str, tuple[str, str]] = {}  # the worker and queue of each running job
    full: set[tuple[str, str]] = set()
    for job, after, queue, worker in drill.query(_LEASES):
        if after != "running":
            held[running.pop(job, ("", queue))].discard(job)
        elif job not in running:
            key = running[job] = (worker, queue)
            held[key].add(job)
            slots = SLOTS.get(queue, _REST)
            if len(held[key]) == slots:
                full.add(key)
            drill.expect(
                len(held[key]) <= slots,
                f"{worker} held {len(held[key])} jobs of {queue}, which has {slots} slots",
            )
    drill.measured["full_queues"] = len(full)
