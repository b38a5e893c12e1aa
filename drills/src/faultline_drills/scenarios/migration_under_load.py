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
from faultline_drills.arena import Arena
from faultline_drills.crowd import all_at_once
from faultline_drills.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.subjects import Subject, weaken
from faultline_drills.workload import note, pay, pay_by_hand

ROUNDS = 3
PRODUCERS = 2
TASKS = (pay, pay_by_hand, note)
# Of the drill's own: a migration makes nobody wait for nearly as long, and a busy machine may for one.
LEASES = 5


@scenario(shows=("migrations", "commits"))
def migration_under_load(arena: Arena) -> None:
    for _ in range(arena.settings.workers):
        lease = str(LEASES * arena.settings.lease_seconds)
        arena.started("--concurrency", "4", "--lease-seconds", lease)
    for _ in range(ROUNDS):
        _upgrade(arena)
    submitted = ROUNDS * PRODUCERS * arena.settings.jobs
    arena.wait_until(
        lambda: arena.count("SELECT count(*) FROM faultline.ledger") == submitted,
        "the end of all jobs",
    )
    harmed = arena.query("SELECT outcome, error FROM faultline.attempts_log LIMIT 3")
    arena.expect(not harmed, f"no attempt is lost to an upgrade, but: {harmed}")
    arena.dismiss(arena.workers)  # a session adds to the server's statistics when it ends
    deadlocks = arena.count(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    arena.expect(deadlocks == 0, f"{deadlocks} deadlocks between migrators and workers")


def _upgrade(arena: Arena) -> None:
    """As if the installed functions were another version's: one migrator replaces them, the other
    waits and finds nothing to do. Jobs come in and are run all the while."""
    arena.conn.execute("COMMENT ON SCHEMA faultline IS 'functions of another version'")

    def replaces_functions(conn: Connection) -> bool:
        try:
            return migrate(arena.url).functions_replaced
        except (psycopg.Error, FaultlineError) as error:
            arena.expect(False, f"a migrator failed: {error!r}")
            return False

    producers = [_producer(arena, number) for number in range(PRODUCERS)]
    replaced = sum(all_at_once(arena, [replaces_functions, replaces_functions, *producers]))
    arena.expect(replaced == 1, f"{replaced} of two migrators replaced the functions")
    if replaced:
        arena.inject("migration")
    if arena.settings.subject is Subject.NAIVE:
        weaken(arena.url)


def _producer(arena: Arena, who: int) -> Callable[[Connection], bool]:
    def submit(conn: Connection) -> bool:
        for number in range(arena.settings.jobs):
            operation = arena.history.invoke(f"producer-{who}", Verb.SUBMIT)
            enqueued = TASKS[number % len(TASKS)].enqueue(number=number, conn=conn)
            arena.history.end(operation, Phase.OK, job=str(enqueued.job_id))
        return False

    return submit
