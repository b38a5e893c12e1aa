"""The explored programs: a few actors that compete for one or two jobs.

Each function adds the jobs and actors; its docstring says what they do. The explorer chooses the
order of their steps.
"""

from __future__ import annotations

from collections.abc import Callable

from faultline.unique import Unique
from faultline_drills.explorer import actors
from faultline_drills.explorer.program_execution import ProgramExecution
from faultline_drills.explorer.stepped_session import RoundTripFault
from faultline_drills.explorer.worker_actor import (
    Handler,
    WorkerActor,
    add_heartbeat,
    fails,
    in_job_transaction,
    in_own_transaction,
    in_repeatable_read,
    snoozes,
    with_fenced_step,
    without_writes,
)

Program = Callable[[ProgramExecution], None]
PROGRAMS: dict[str, Program] = {}
BATCH_STEP = "commits a batch"


def program(function: Program) -> Program:
    PROGRAMS[function.__name__.replace("_", "-")] = function
    return function


def description_of(name: str) -> str:
    return " ".join((PROGRAMS[name].__doc__ or "").split())


# ── workers ──────────────────────────────────────────────────────────────────────────────────────


def works(
    handler: Handler, *, rounds: int = 1, batch_size: int = 1
) -> Callable[[WorkerActor], None]:
    def act(worker: WorkerActor) -> None:
        for _ in range(rounds):
            for job in worker.claim(batch_size):
                worker.attempt(job, handler)

    return act


def holder(
    execution: ProgramExecution, name: str, handler: Handler, *, count: int = 1
) -> WorkerActor:
    """Add a worker that already holds its jobs."""

    def act(worker: WorkerActor) -> None:
        worker.attempt_all(jobs, handler)

    worker = WorkerActor(execution, name, act)
    jobs = [worker.hold(claim) for claim in execution.claimed(name, count)]
    return worker


# ── takeovers ───────────────────────────────────────────────────────────────────────────────────


@program
def takeover(execution: ProgramExecution) -> None:
    """A worker's lease expires, and another worker takes its job over."""
    execution.enqueue()
    holder(execution, "w1", in_job_transaction)
    WorkerActor(execution, "w2", works(in_job_transaction))
    actors.add_clock(execution)


@program
def own_transaction(execution: ProgramExecution) -> None:
    """A worker commits in its handler's transaction while its job is taken over.

    A reconciler requeues the job, and another worker claims it.
    """
    execution.enqueue()
    holder(execution, "w1", in_own_transaction)
    WorkerActor(execution, "w2", works(in_job_transaction))
    actors.add_reconciler(execution)
    actors.add_clock(execution)


@program
def three_workers(execution: ProgramExecution) -> None:
    """Three workers compete for one job, whose lease expires twice."""
    execution.enqueue()
    WorkerActor(execution, "w1", works(in_job_transaction))
    WorkerActor(execution, "w2", works(in_job_transaction))
    WorkerActor(execution, "w3", works(in_own_transaction))
    actors.add_clock(execution, times=2)


@program
def heartbeat(execution: ProgramExecution) -> None:
    """A heartbeat competes with a reconciler and with its worker's commit.

    Another worker waits for the job.
    """
    execution.enqueue()
    worker = holder(execution, "w1", in_job_transaction)
    add_heartbeat(worker, beats=2)
    actors.add_clock(execution)
    actors.add_reconciler(execution)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def late_heartbeat(execution: ProgramExecution) -> None:
    """A worker that lost its job goes on renewing it while the next worker holds it."""
    execution.enqueue()
    worker = WorkerActor(execution, "w1", lambda worker: None)
    for claim in execution.claimed("w1"):
        worker.hold(claim)
    add_heartbeat(worker, beats=2)
    WorkerActor(execution, "w2", works(in_own_transaction))
    actors.add_clock(execution, times=2)


@program
def stale_failure_report(execution: ProgramExecution) -> None:
    """A worker reports a failure after its job was taken over."""
    execution.enqueue()
    holder(execution, "w1", fails)
    WorkerActor(execution, "w2", works(in_job_transaction))
    actors.add_clock(execution)


@program
def late_release(execution: ProgramExecution) -> None:
    """A stopping worker releases its job after it was taken over."""
    execution.enqueue()

    def leaves(worker: WorkerActor) -> None:
        for job in jobs:
            worker.release(job)

    worker = WorkerActor(execution, "w1", leaves)
    jobs = [worker.hold(claim) for claim in execution.claimed("w1")]
    WorkerActor(execution, "w2", works(in_job_transaction))
    actors.add_clock(execution)


@program
def late_snooze(execution: ProgramExecution) -> None:
    """A handler snoozes its job after the job was taken over."""
    execution.enqueue()
    holder(execution, "w1", snoozes)
    WorkerActor(execution, "w2", works(in_job_transaction))
    actors.add_clock(execution)


@program
def snooze_last_attempt(execution: ProgramExecution) -> None:
    """A last attempt is snoozed while its lease expires and a reconciler finds it.

    The job waits with its attempt unused, or is poison; the finisher runs it in the first case.
    """
    execution.enqueue(max_attempts=1)
    holder(execution, "w1", snoozes)
    actors.add_clock(execution)
    actors.add_reconciler(execution)


@program
def snooze_and_cancel(execution: ProgramExecution) -> None:
    """An operator cancels and retries a job while its handler snoozes it."""
    execution.enqueue()
    holder(execution, "w1", snoozes)
    actors.add_operator(execution, "cancel", "retry", in_transaction=True)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def repeatable_read(execution: ProgramExecution) -> None:
    """A worker commits at REPEATABLE READ during a heartbeat and a cancellation."""
    execution.enqueue()
    worker = holder(execution, "w1", in_repeatable_read)
    add_heartbeat(worker)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_clock(execution)


@program
def mistaken_for_dead(execution: ProgramExecution) -> None:
    """A reconciler requeues the job of a living worker while the worker commits.

    It takes the worker for dead, and acts in its own transaction.
    """
    execution.enqueue()
    holder(execution, "w1", in_own_transaction)
    actors.add_mistaken_reconciler(execution, "w1")
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def reconcilers(execution: ProgramExecution) -> None:
    """Three reconcilers find one expired lease while its worker commits."""
    execution.enqueue()
    holder(execution, "w1", in_job_transaction)
    actors.add_clock(execution)
    actors.add_reconciler(execution, "reconciler-1")
    actors.add_reconciler(execution, "reconciler-2")
    actors.add_reconciler(execution, "reconciler-3")


# ── operators and producers ──────────────────────────────────────────────────────────────────────


@program
def cancel(execution: ProgramExecution) -> None:
    """An operator cancels a job in a transaction while a worker commits it."""
    execution.enqueue()
    holder(execution, "w1", in_own_transaction)
    actors.add_operator(execution, "cancel", in_transaction=True)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def cancel_expired(execution: ProgramExecution) -> None:
    """An operator cancels a job whose lease has expired.

    Meanwhile a reconciler requeues the job and its worker reports a failure.
    """
    execution.enqueue()
    holder(execution, "w1", fails)
    actors.add_clock(execution)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_reconciler(execution)


@program
def retry(execution: ProgramExecution) -> None:
    """An operator cancels and retries a job while its first worker tries to commit."""
    execution.enqueue()
    holder(execution, "w1", in_job_transaction)
    actors.add_operator(execution, "cancel", "retry")
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def last_attempt(execution: ProgramExecution) -> None:
    """A last attempt's lease expires: the job becomes dead or commits, never both."""
    execution.enqueue(max_attempts=1)
    holder(execution, "w1", in_job_transaction)
    actors.add_clock(execution)
    actors.add_reconciler(execution)
    actors.add_operator(execution, "retry")


@program
def idempotency_key(execution: ProgramExecution) -> None:
    """Three producers enqueue one job under one key, two of them in transactions."""
    actors.add_producer(execution, "producer-1", "order-1", in_transaction=True)
    actors.add_producer(execution, "producer-2", "order-1", in_transaction=True)
    actors.add_producer(execution, "producer-3", "order-1")
    WorkerActor(execution, "w1", works(in_own_transaction))


# ── unique jobs ──────────────────────────────────────────────────────────────────────────────────

UNFINISHED = Unique(by=("key",))
LAST_PAYLOAD = Unique(by=("key",), while_="queued", on_conflict="replace")


@program
def unique_job(execution: ProgramExecution) -> None:
    """Three producers enqueue under one unique key while a worker claims and commits.

    Two of them enqueue in transactions. At most one unfinished job has the key.
    """
    actors.add_unique_producer(execution, "producer-1", UNFINISHED, in_transaction=True)
    actors.add_unique_producer(execution, "producer-2", UNFINISHED, in_transaction=True)
    actors.add_unique_producer(execution, "producer-3", UNFINISHED)
    WorkerActor(execution, "w1", works(in_own_transaction, rounds=2))


@program
def unique_replace(execution: ProgramExecution) -> None:
    """Producers replace a waiting job's payload while workers claim it.

    The payload of the last one runs, once.
    """
    execution.enqueue_unique("setup", LAST_PAYLOAD)
    actors.add_unique_producer(execution, "producer-1", LAST_PAYLOAD, in_transaction=True)
    actors.add_unique_producer(execution, "producer-2", LAST_PAYLOAD, times=2)
    WorkerActor(execution, "w1", works(in_job_transaction))
    actors.add_sql_client(execution, "psql")


@program
def unique_retry(execution: ProgramExecution) -> None:
    """An operator cancels and retries a unique job while producers use its key."""
    execution.enqueue_unique("setup", UNFINISHED)
    actors.add_operator(execution, "cancel", "retry", in_transaction=True)
    actors.add_unique_producer(execution, "producer-1", UNFINISHED, in_transaction=True)
    actors.add_unique_producer(execution, "producer-2", UNFINISHED)
    WorkerActor(execution, "w1", works(in_job_transaction))


# ── batches ──────────────────────────────────────────────────────────────────────────────────────


@program
def batch(execution: ProgramExecution) -> None:
    """A worker commits two jobs in a batch while one of them is taken over."""
    execution.enqueue(2, parts=0)
    holder(execution, "w1", without_writes, count=2)
    actors.add_clock(execution, only=0)
    WorkerActor(execution, "w2", works(without_writes))


@program
def batch_and_heartbeat(execution: ProgramExecution) -> None:
    """A batch commits during a heartbeat, while an operator locks one of its rows."""
    execution.enqueue(2, parts=0)
    worker = holder(execution, "w1", without_writes, count=2)
    add_heartbeat(worker)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_clock(execution, only=1)


@program
def three_claimants(execution: ProgramExecution) -> None:
    """Three clients claim two jobs, one of them inside its own transaction."""
    execution.enqueue(2)
    WorkerActor(execution, "w1", works(in_job_transaction))
    WorkerActor(execution, "w2", works(in_job_transaction))
    actors.add_sql_client(execution, "psql")


@program
def sql_clients(execution: ProgramExecution) -> None:
    """Two clients with nothing but SQL claim inside transactions; the lease expires."""
    execution.enqueue()
    actors.add_sql_client(execution, "psql-1")
    actors.add_sql_client(execution, "psql-2")
    actors.add_clock(execution)


@program
def repeated_commit(execution: ProgramExecution) -> None:
    """A client repeats its commit whatever the reply was; its job is taken over."""
    execution.enqueue()
    (claim,) = execution.claimed("w1")
    actors.add_repeating_client(execution, "w1", claim)
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def fenced_step(execution: ProgramExecution) -> None:
    """A handler commits a fenced step in mid-job; the lease expires around it."""
    execution.enqueue()
    holder(execution, "w1", with_fenced_step)
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_job_transaction))


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


@program
def crash(execution: ProgramExecution) -> None:
    """A worker is killed at any step from its claim on; another worker takes over."""
    execution.enqueue()
    WorkerActor(execution, "w1", works(in_job_transaction))
    actors.add_killer(execution, ["w1"])
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def ended_session(execution: ProgramExecution) -> None:
    """PostgreSQL ends a worker's session at any step; the worker settles its attempt."""
    execution.enqueue()
    holder(execution, "w1", in_job_transaction)
    actors.add_session_killer(execution, "w1")
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def lost_reply(execution: ProgramExecution) -> None:
    """The reply to a COMMIT is lost; the worker finds out whether it committed."""
    execution.enqueue()
    holder(execution, "w1", in_job_transaction)
    actors.add_network_fault(execution, "w1", RoundTripFault.LOSE_REPLY, at="COMMIT")
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def late_commit(execution: ProgramExecution) -> None:
    """A COMMIT whose connection was lost arrives while the worker settles its attempt.

    An administrator may end the session before it arrives.
    """
    execution.enqueue()
    holder(execution, "w1", in_own_transaction)
    actors.add_network_fault(execution, "w1", RoundTripFault.DELIVER_LATE, at="COMMIT")
    actors.add_delayed_session_killer(execution, "w1")
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def lost_batch(execution: ProgramExecution) -> None:
    """The reply to a batch is lost, and the committer sends the batch again."""
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
    """One reply is lost, that to the claim or any later one.

    If it is the claim's, no worker knows of the lease until it expires.
    """
    execution.enqueue()
    WorkerActor(execution, "w1", works(in_job_transaction))
    actors.add_network_fault(execution, "w1", RoundTripFault.LOSE_REPLY)
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works(in_job_transaction))
