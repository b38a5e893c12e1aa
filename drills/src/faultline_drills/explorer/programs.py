"""The stories that are explored: small casts whose every meeting on a job's row is worth a look.

Each function sets the scene; its docstring is the story. Who moves when is the explorer's business.
"""

from __future__ import annotations

from collections.abc import Callable

from faultline_drills.explorer import actors
from faultline_drills.explorer.program_execution import ProgramExecution
from faultline_drills.explorer.stepped_session import RoundTripFault
from faultline_drills.explorer.worker_actor import (
    Handler,
    WorkerActor,
    add_heartbeat,
    in_a_transaction_of_its_own,
    in_its_transaction,
    in_one_snapshot,
    in_vain,
    with_a_step_before,
    without_writes,
)

Program = Callable[[ProgramExecution], None]
PROGRAMS: dict[str, Program] = {}
BATCH_STEP = "commits a batch"


def program(function: Program) -> Program:
    PROGRAMS[function.__name__.replace("_", "-")] = function
    return function


def story_of(name: str) -> str:
    return " ".join((PROGRAMS[name].__doc__ or "").split())


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def works(handler: Handler, *, rounds: int = 1) -> Callable[[WorkerActor], None]:
    def part(worker: WorkerActor) -> None:
        for _ in range(rounds):
            for job in worker.claim():
                worker.attempt(job, handler)

    return part


def holder(
    execution: ProgramExecution, name: str, handler: Handler, *, count: int = 1
) -> WorkerActor:
    """A worker that holds its jobs when the curtain rises."""

    def part(worker: WorkerActor) -> None:
        worker.attempt_all(jobs, handler)

    worker = WorkerActor(execution, name, part)
    jobs = [worker.hold(claim) for claim in execution.claimed(name, count)]
    return worker


# ── takeover ────────────────────────────────────────────────────────────────────────────────────


@program
def takeover(execution: ProgramExecution) -> None:
    """A worker holds a job, the lease runs out, and another worker takes the job over."""
    execution.enqueue()
    holder(execution, "w1", in_its_transaction)
    WorkerActor(execution, "w2", works(in_its_transaction))
    actors.add_clock(execution)


@program
def own_transaction(execution: ProgramExecution) -> None:
    """The first worker commits in a transaction that its handler owns, while a reconciler gives the job
    back and another worker takes it."""
    execution.enqueue()
    holder(execution, "w1", in_a_transaction_of_its_own)
    WorkerActor(execution, "w2", works(in_its_transaction))
    actors.add_reconciler(execution)
    actors.add_clock(execution)


@program
def three_workers(execution: ProgramExecution) -> None:
    """Three workers want one job, and its lease runs out twice."""
    execution.enqueue()
    WorkerActor(execution, "w1", works(in_its_transaction))
    WorkerActor(execution, "w2", works(in_its_transaction))
    WorkerActor(execution, "w3", works(in_a_transaction_of_its_own))
    actors.add_clock(execution, times=2)


@program
def heartbeat(execution: ProgramExecution) -> None:
    """A heartbeat races with the reconciler that wants to give its job back, and with its own worker's
    commit; another worker waits for the job."""
    execution.enqueue()
    worker = holder(execution, "w1", in_its_transaction)
    add_heartbeat(worker, beats=2)
    actors.add_clock(execution)
    actors.add_reconciler(execution)
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def late_heartbeat(execution: ProgramExecution) -> None:
    """A worker that has lost its job goes on renewing it, while the next one holds it."""
    execution.enqueue()
    worker = WorkerActor(execution, "w1", lambda worker: None)
    for claim in execution.claimed("w1"):
        worker.hold(claim)
    add_heartbeat(worker, beats=2)
    WorkerActor(execution, "w2", works(in_a_transaction_of_its_own))
    actors.add_clock(execution, times=2)


@program
def stale_failure_report(execution: ProgramExecution) -> None:
    """A worker reports a failure after its job was taken over."""
    execution.enqueue()
    holder(execution, "w1", in_vain)
    WorkerActor(execution, "w2", works(in_its_transaction))
    actors.add_clock(execution)


@program
def late_release(execution: ProgramExecution) -> None:
    """A worker that is told to leave hands its job back after it was taken over."""
    execution.enqueue()

    def leaves(worker: WorkerActor) -> None:
        for job in jobs:
            worker.release(job)

    worker = WorkerActor(execution, "w1", leaves)
    jobs = [worker.hold(claim) for claim in execution.claimed("w1")]
    WorkerActor(execution, "w2", works(in_its_transaction))
    actors.add_clock(execution)


@program
def repeatable_read(execution: ProgramExecution) -> None:
    """A worker commits at REPEATABLE READ while its heartbeat renews and an operator wants to cancel."""
    execution.enqueue()
    worker = holder(execution, "w1", in_one_snapshot)
    add_heartbeat(worker)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_clock(execution)


@program
def mistaken_for_dead(execution: ProgramExecution) -> None:
    """A reconciler takes a living worker for dead and gives its job away in a transaction of its own,
    while the worker commits."""
    execution.enqueue()
    holder(execution, "w1", in_a_transaction_of_its_own)
    actors.add_mistaken_reconciler(execution, "w1")
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def reconcilers(execution: ProgramExecution) -> None:
    """Three reconcilers meet over one expired lease, while its worker commits."""
    execution.enqueue()
    holder(execution, "w1", in_its_transaction)
    actors.add_clock(execution)
    actors.add_reconciler(execution, "reconciler-1")
    actors.add_reconciler(execution, "reconciler-2")
    actors.add_reconciler(execution, "reconciler-3")


# ── operators and producers ──────────────────────────────────────────────────────────────────────


@program
def cancel(execution: ProgramExecution) -> None:
    """An operator cancels the job in a transaction of theirs, while a worker commits it."""
    execution.enqueue()
    holder(execution, "w1", in_a_transaction_of_its_own)
    actors.add_operator(execution, "cancel", in_transaction=True)
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def cancel_expired(execution: ProgramExecution) -> None:
    """An operator cancels a job whose lease has run out, while a reconciler gives it back and its
    worker reports a failure."""
    execution.enqueue()
    holder(execution, "w1", in_vain)
    actors.add_clock(execution)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_reconciler(execution)


@program
def retry(execution: ProgramExecution) -> None:
    """An operator cancels a job and has it run again, while its first worker still tries to commit."""
    execution.enqueue()
    holder(execution, "w1", in_its_transaction)
    actors.add_operator(execution, "cancel", "retry")
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def last_attempt(execution: ProgramExecution) -> None:
    """The lease of a job's last attempt runs out: it is buried or committed, never both."""
    execution.enqueue(max_attempts=1)
    holder(execution, "w1", in_its_transaction)
    actors.add_clock(execution)
    actors.add_reconciler(execution)
    actors.add_operator(execution, "retry")


@program
def idempotency_key(execution: ProgramExecution) -> None:
    """Three producers submit one piece of work under one key, two of them in transactions of theirs."""
    actors.add_producer(execution, "producer-1", "order-1", in_transaction=True)
    actors.add_producer(execution, "producer-2", "order-1", in_transaction=True)
    actors.add_producer(execution, "producer-3", "order-1")
    WorkerActor(execution, "w1", works(in_a_transaction_of_its_own))


# ── batches ──────────────────────────────────────────────────────────────────────────────────────


@program
def batch(execution: ProgramExecution) -> None:
    """A worker commits two jobs as one batch, while the lease of one of them runs out and another
    worker takes it."""
    execution.enqueue(2, parts=0)
    holder(execution, "w1", without_writes, count=2)
    actors.add_clock(execution, only=0)
    WorkerActor(execution, "w2", works(without_writes))


@program
def batch_and_heartbeat(execution: ProgramExecution) -> None:
    """A batch is committed while its worker's heartbeat renews and an operator holds one of the rows."""
    execution.enqueue(2, parts=0)
    worker = holder(execution, "w1", without_writes, count=2)
    add_heartbeat(worker)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_clock(execution, only=1)


@program
def three_claimants(execution: ProgramExecution) -> None:
    """Three workers claim two jobs, one of them inside a transaction of its own."""
    execution.enqueue(2)
    WorkerActor(execution, "w1", works(in_its_transaction))
    WorkerActor(execution, "w2", works(in_its_transaction))
    actors.add_sql_client(execution, "psql")


@program
def sql_clients(execution: ProgramExecution) -> None:
    """Two clients with nothing but SQL claim inside transactions, and the lease runs out."""
    execution.enqueue()
    actors.add_sql_client(execution, "psql-1")
    actors.add_sql_client(execution, "psql-2")
    actors.add_clock(execution)


@program
def repeated_commit(execution: ProgramExecution) -> None:
    """A client sends its commit again whatever it was told, and its job is taken over meanwhile."""
    execution.enqueue()
    (claim,) = execution.claimed("w1")
    actors.add_repeating_client(execution, "w1", claim)
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def takeover_after_fenced_step(execution: ProgramExecution) -> None:
    """A handler commits a fenced step in the middle of its job; the lease runs out around it."""
    execution.enqueue()
    holder(execution, "w1", with_a_step_before)
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_its_transaction))


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


@program
def crash(execution: ProgramExecution) -> None:
    """A worker is killed at any of its steps, from its claim on; another one takes over."""
    execution.enqueue()
    WorkerActor(execution, "w1", works(in_its_transaction))
    actors.add_killer(execution, ["w1"])
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def ended_session(execution: ProgramExecution) -> None:
    """The server ends a worker's session at any step; the worker lives on and settles its attempt."""
    execution.enqueue()
    holder(execution, "w1", in_its_transaction)
    actors.add_session_killer(execution, "w1")
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def lost_reply(execution: ProgramExecution) -> None:
    """The answer to a COMMIT is lost, and the worker finds out what became of it."""
    execution.enqueue()
    holder(execution, "w1", in_its_transaction)
    actors.add_network_fault(execution, "w1", RoundTripFault.LOSE_REPLY, at="COMMIT")
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def late_commit(execution: ProgramExecution) -> None:
    """A worker loses its connection when it sends its COMMIT, which arrives while it settles the
    attempt, unless an administrator ends the session first."""
    execution.enqueue()
    holder(execution, "w1", in_a_transaction_of_its_own)
    actors.add_network_fault(execution, "w1", RoundTripFault.DELIVER_LATE, at="COMMIT")
    actors.add_delayed_session_killer(execution, "w1")
    WorkerActor(execution, "w2", works(in_its_transaction))


@program
def lost_batch(execution: ProgramExecution) -> None:
    """The answer to a batch is lost, and the committer sends the batch again."""
    execution.enqueue(2, parts=0)
    holder(execution, "w1", without_writes, count=2)
    actors.add_network_fault(
        execution, "w1", RoundTripFault.LOSE_REPLY, at=BATCH_STEP, purpose="committer"
    )
    actors.add_clock(execution, only=0)
    WorkerActor(execution, "w2", works(without_writes))


@program
def late_batch(execution: ProgramExecution) -> None:
    """A batch arrives after the committer has sent it again."""
    execution.enqueue(2, parts=0)
    holder(execution, "w1", without_writes, count=2)
    actors.add_network_fault(
        execution, "w1", RoundTripFault.DELIVER_LATE, at=BATCH_STEP, purpose="committer"
    )
    actors.add_clock(execution, only=0)
    WorkerActor(execution, "w2", works(without_writes))


@program
def any_lost_reply(execution: ProgramExecution) -> None:
    """Any one answer is lost, from that to the claim on: then nobody knows of the lease until it runs
    out."""
    execution.enqueue()
    WorkerActor(execution, "w1", works(in_its_transaction))
    actors.add_network_fault(execution, "w1", RoundTripFault.LOSE_REPLY)
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_its_transaction))
