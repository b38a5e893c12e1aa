"""Two migrators replace all functions and triggers while workers commit.

An upgrade needs no downtime. Migrators must wait for each other but not for the workers, and every
transaction must see the old fence or the new one, never none. No attempt may fail because of it,
and no lease may expire while a session waits for a lock.
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
# Times the drill's lease, so that on a busy machine no lease expires.
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
    lost = drill.query("SELECT outcome, error FROM faultline.attempts_log LIMIT 3")
    drill.expect(not lost, f"attempts were lost to an upgrade: {lost}")
    drill.stop_workers(drill.workers)  # ended sessions have reported their statistics
    deadlocks = drill.count(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    drill.expect(deadlocks == 0, f"{deadlocks} deadlocks between migrators and workers")


def _upgrade(drill: DrillContext) -> None:
    """Mark the functions as outdated: one of two migrators must replace them."""
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
            enqueued = TASKS[number % len(TASKS)].options(conn=conn).enqueue(number=number)
            drill.history.end(operation, Phase.OK, job=str(enqueued.job_id))
        return False

    return submit
