"""Explored programs about limits: jobs of one task that must not all run at once."""

from __future__ import annotations

from contextlib import nullcontext

from faultline.errors import FaultlineError
from faultline.postgres.sessions import run
from faultline.statements import limits
from faultline_drills.explorer import actors
from faultline_drills.explorer.program_execution import ProgramExecution
from faultline_drills.explorer.programs import holder, program, works
from faultline_drills.explorer.worker_actor import (
    WorkerActor,
    fails,
    in_job_transaction,
    in_own_transaction,
    without_writes,
)

LIMIT = "task:explored"
KEYED_LIMIT = "key:explored"
_MAX_REPAIRED = 1000
_OPEN_CLAIM = "has been open in a transaction"


def set_limit(execution: ProgramExecution, running: int) -> None:
    setup = execution.database.setup
    run(setup, limits.set_limit(LIMIT, max_running=running))
    # As after the first claim: else inserting this row makes claims wait for each other.
    setup.execute("INSERT INTO faultline.limit_states (limit_key) VALUES (%s)", [LIMIT])


def set_keyed_limit(execution: ProgramExecution, running: int, *known_keys: str) -> None:
    """Limit the jobs of each key. The known keys were claimed before, and are idle."""
    setup = execution.database.setup
    statement = limits.set_limit(KEYED_LIMIT, max_running=running, task="explored", argument="key")
    run(setup, statement)
    for key in known_keys:
        state = "INSERT INTO faultline.limit_states (limit_key) VALUES (%s)"
        setup.execute(state, [f"{KEYED_LIMIT}={key}"])


def add_limit_changes(execution: ProgramExecution, *running: int, name: str = LIMIT) -> None:
    """An operator that changes the limit several times."""

    def act() -> None:
        for number in running:
            try:
                run(session.connection(), limits.set_limit(name, max_running=number))
            except FaultlineError as error:  # on a machine that is busy for two seconds
                if _OPEN_CLAIM not in error.message:
                    raise
                permit.note("gave up")

    permit = execution.add("limit-operator", act)
    session = execution.session("limit-operator")


def add_limits_repair(
    execution: ProgramExecution, *, passes: int = 1, in_transaction: bool = False
) -> None:
    """The reconciler's repair of limits; its transaction may stay open for a while."""

    def act() -> None:
        for _ in range(passes):
            conn = session.connection()
            with conn.transaction() if in_transaction else nullcontext():
                done = run(conn, limits.repair(_MAX_REPAIRED, {}))
                permit.note(
                    f"{done.freed} freed, {done.resumed} resumed, {done.forgotten} forgotten"
                )

    permit = execution.add("limits-repair", act)
    session = execution.session("limits-repair")


@program
def limit_claims(execution: ProgramExecution) -> None:
    """Three clients claim jobs of which one may run, one of them in a transaction."""
    set_limit(execution, 1)
    execution.enqueue(3)
    WorkerActor(execution, "w1", works(in_job_transaction))
    WorkerActor(execution, "w2", works(in_own_transaction, rounds=2))
    actors.add_sql_client(execution, "psql")


@program
def limit_takeover(execution: ProgramExecution) -> None:
    """The only place belongs to a job whose lease expires; a reconciler frees it."""
    set_limit(execution, 1)
    execution.enqueue(2)
    holder(execution, "w1", in_job_transaction)
    WorkerActor(execution, "w2", works(in_job_transaction, rounds=2))
    actors.add_reconciler(execution)
    actors.add_clock(execution)


@program
def limit_failures(execution: ProgramExecution) -> None:
    """A worker fails its job while others claim, and an operator cancels the job."""
    set_limit(execution, 1)
    execution.enqueue(2)
    holder(execution, "w1", fails)
    actors.add_operator(execution, "cancel", "retry", in_transaction=True)
    WorkerActor(execution, "w2", works(in_own_transaction, rounds=2))


@program
def limit_change(execution: ProgramExecution) -> None:
    """An operator lowers and raises the limit while workers claim and commit.

    A client whose claim stays open makes the operator wait.
    """
    set_limit(execution, 2)
    execution.enqueue(3)
    holder(execution, "w1", in_own_transaction)
    add_limit_changes(execution, 1, 0, 2)
    WorkerActor(execution, "w2", works(in_job_transaction))
    actors.add_sql_client(execution, "psql")


@program
def limit_crash(execution: ProgramExecution) -> None:
    """A worker is killed at any step; its place must become free again."""
    set_limit(execution, 1)
    execution.enqueue(2)
    WorkerActor(execution, "w1", works(in_job_transaction))
    actors.add_killer(execution, ["w1"])
    actors.add_clock(execution)
    actors.add_reconciler(execution)
    WorkerActor(execution, "w2", works(in_own_transaction, rounds=2))


@program
def limit_batch(execution: ProgramExecution) -> None:
    """A worker commits five jobs in one batch while others claim the waiting ones."""
    set_limit(execution, 5)
    execution.enqueue(7, parts=0)
    holder(execution, "w1", without_writes, count=5)
    actors.add_clock(execution, only=0)
    WorkerActor(execution, "w2", works(without_writes, rounds=2))
    actors.add_operator(execution, "cancel")


@program
def limit_repair(execution: ProgramExecution) -> None:
    """The repair deletes the row of an idle key while clients claim jobs of the key."""
    set_keyed_limit(execution, 1, "a")
    for _ in range(3):
        execution.enqueue(key="a")
    add_limits_repair(execution, passes=2, in_transaction=True)
    WorkerActor(execution, "w1", works(in_job_transaction))
    actors.add_sql_client(execution, "psql")
    actors.add_sql_client(execution, "psql2")


@program
def limit_two(execution: ProgramExecution) -> None:
    """Two may run; of their jobs one fails, and one expires and is reconciled."""
    set_limit(execution, 2)
    execution.enqueue(3, parts=0)
    holder(execution, "w1", fails)
    holder(execution, "w2", without_writes)
    actors.add_clock(execution, only=1)
    actors.add_reconciler(execution)
    WorkerActor(execution, "w3", works(without_writes))


@program
def limit_five(execution: ProgramExecution) -> None:
    """Five may run; a holder of five is killed while the limit changes."""
    set_limit(execution, 5)
    execution.enqueue(7, parts=0)
    holder(execution, "w1", without_writes, count=5)
    actors.add_killer(execution, ["w1"])
    actors.add_clock(execution)
    add_limit_changes(execution, 1, 5)
    WorkerActor(execution, "w2", works(without_writes, batch_size=3))


@program
def limit_keys(execution: ProgramExecution) -> None:
    """One job of each key may run; two workers and a client claim two keys."""
    set_keyed_limit(execution, 1, "a", "b")
    for key in ("a", "b", "a"):
        execution.enqueue(key=key)
    WorkerActor(execution, "w1", works(in_job_transaction, batch_size=2))
    WorkerActor(execution, "w2", works(in_own_transaction, rounds=2))
    actors.add_sql_client(execution, "psql")


@program
def limit_keys_change(execution: ProgramExecution) -> None:
    """An operator changes a limit with keys, one of which no claim has met before."""
    set_keyed_limit(execution, 2, "a")
    for key in ("a", "a", "b", "a"):
        execution.enqueue(key=key)
    holder(execution, "w1", fails)
    add_limit_changes(execution, 1, 2, name=KEYED_LIMIT)
    actors.add_clock(execution, only=0)
    actors.add_sql_client(execution, "psql")
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def limit_lines(execution: ProgramExecution) -> None:
    """The repair of limits runs while jobs wait, are cancelled, and end."""
    set_limit(execution, 1)
    execution.enqueue(3, parts=0)
    holder(execution, "w1", without_writes)
    add_limits_repair(execution, passes=2)
    actors.add_operator(execution, "cancel", in_transaction=True)
    WorkerActor(execution, "w2", works(without_writes))
