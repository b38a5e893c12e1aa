"""Two migrators replace every function and trigger, again and again, while workers claim and commit.

An upgrade needs no downtime. Migrators wait for each other, not for the workers, and a transaction
sees the old fence or the new one and never none. No attempt fails because of it, and no lease runs
out while somebody waits for a lock.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from faultline.errors import FaultlineError
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import Connection
from faultline_drills.clients.concurrent_sessions import run_concurrently
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.subjects import Subject, weaken
from faultline_drills.workload.tasks import note, pay, pay_by_hand

ROUNDS = 3
PRODUCERS = 2
TASKS = (pay, pay_by_hand, note)
# Of the drill's own: a migration makes nobody wait for nearly as long, and a busy machine may for one.
LEASES = 5


@scenario(shows=("migrations", "commits"))
def migration_under_load(drill: DrillContext) -> None:
    for _ in range(drill.settings.workers):
        lease = str(LEASES * drill.settings.lease_seconds)
        drill.started_worker("--concurrency", "4", "--lease-seconds", lease)
    for _ in range(ROUNDS):
        _upgrade(drill)
    submitted = ROUNDS * PRODUCERS * drill.settings.jobs
    drill.wait_until(
        lambda: drill.count("SELECT count(*) FROM faultline.ledger") == submitted,
        "the end of all jobs",
    )
    harmed = drill.query("SELECT outcome, error FROM faultline.attempts_log LIMIT 3")
    drill.expect(not harmed, f"no attempt is lost to an upgrade, but: {harmed}")
    drill.stop_workers(drill.workers)  # a session adds to the server's statistics when it ends
    deadlocks = drill.count(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    drill.expect(deadlocks == 0, f"{deadlocks} deadlocks between migrators and workers")


def _upgrade(drill: DrillContext) -> None:
    """As if the installed functions were another version's: one migrator replaces them, the other
    waits and finds nothing to do. Jobs come in and are run all the while."""
    drill.conn.execute("COMMENT ON SCHEMA faultline IS 'functions of another version'")

    def replaces_functions(conn: Connection) -> bool:
        try:
            return migrate(drill.url).functions_replaced
        except (psycopg.Error, FaultlineError) as error:
            drill.expect(False, f"a migrator failed: {error!r}")
            return False

    producers = [_producer(drill, number) for number in range(PRODUCERS)]
    replaced = sum(run_concurrently(drill, [replaces_functions, replaces_functions, *producers]))
    drill.expect(replaced == 1, f"{replaced} of two migrators replaced the functions")
    if replaced:
        drill.inject("migration")
    if drill.settings.subject is Subject.NAIVE:
        weaken(drill.url)


def _producer(drill: DrillContext, who: int) -> Callable[[Connection], bool]:
    def submit(conn: Connection) -> bool:
        for number in range(drill.settings.jobs):
            operation = drill.history.invoke(f"producer-{who}", Verb.SUBMIT)
            enqueued = TASKS[number % len(TASKS)].enqueue(number=number, conn=conn)
            drill.history.end(operation, Phase.OK, job=str(enqueued.job_id))
        return False

    return submit
