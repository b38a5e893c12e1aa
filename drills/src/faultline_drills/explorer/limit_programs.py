"""Explored programs about limits: jobs of one task that must not all run at once."""

from __future__ import annotations

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
KEYED_LIMIT = "key:explored"  # all jobs of a program have one key


def set_limit(execution: ProgramExecution, running: int) -> None:
    setup = execution.database.setup
    run(setup, limits.set_limit(LIMIT, max_running=running))
    # As after the first claim: else inserting this row makes claims wait for each other.
    setup.execute("INSERT INTO faultline.limit_states (limit_key) VALUES (%s)", [LIMIT])


def add_limit_changes(execution: ProgramExecution, *running: int) -> None:
    """An operator that changes the limit several times."""

    def act() -> None:
        for number in running:
            run(session.connection(), limits.set_limit(LIMIT, max_running=number))

    execution.add("limit-operator", act)
    session = execution.session("limit-operator")


def set_keyed_limit(execution: ProgramExecution, running: int) -> None:
    """A limit whose key is idle, so that the repair deletes its row."""
    setup = execution.database.setup
    limit = limits.set_limit(KEYED_LIMIT, max_running=running, task="explored", argument="parts")
    run(setup, limit)
    setup.execute(
        "INSERT INTO faultline.limit_states (limit_key) VALUES (%s)", [f"{KEYED_LIMIT}=1"]
    )


def add_limit_repair(execution: ProgramExecution, *, times: int = 2) -> None:
    """The leading reconciler's repair of limits, each in a transaction that lasts."""

    def act() -> None:
        for _ in range(times):
            with session.connection().transaction():
                run(session.connection(), limits.repair(1000, {}))

    execution.add("limit-repair", act)
    session = execution.session("limit-repair")


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
    """An operator lowers and raises the limit while workers claim and commit."""
    set_limit(execution, 2)
    execution.enqueue(3)
    holder(execution, "w1", in_own_transaction)
    add_limit_changes(execution, 1, 3, 0, 2)
    WorkerActor(execution, "w2", works(in_job_transaction, rounds=2))
    WorkerActor(execution, "w3", works(in_job_transaction))


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
    set_keyed_limit(execution, 1)
    execution.enqueue(3)
    add_limit_repair(execution)
    WorkerActor(execution, "w1", works(in_job_transaction))
    actors.add_sql_client(execution, "psql")
    actors.add_sql_client(execution, "psql2")
