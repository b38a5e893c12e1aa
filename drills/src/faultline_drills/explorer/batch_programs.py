"""Explored programs about batch handlers: one transaction for two jobs."""

from __future__ import annotations

from faultline_drills.explorer import actors
from faultline_drills.explorer.program_execution import ProgramExecution
from faultline_drills.explorer.programs import program, works
from faultline_drills.explorer.stepped_session import RoundTripFault
from faultline_drills.explorer.worker_actor import (
    BatchHandler,
    WorkerActor,
    add_heartbeat,
    failing_the_last,
    in_batch_at_repeatable_read,
    in_batch_transaction,
    in_batch_with_fenced_step,
    in_job_transaction,
)


def batch_holder(execution: ProgramExecution, name: str, handler: BatchHandler) -> WorkerActor:
    """Add a worker that already holds two jobs, as one batch."""

    def act(worker: WorkerActor) -> None:
        worker.attempt_batch(jobs, handler)

    worker = WorkerActor(execution, name, act)
    jobs = [worker.hold(claim) for claim in execution.claimed(name, 2)]
    return worker


def works_in_batches(worker: WorkerActor) -> None:
    if jobs := worker.claim(2):
        worker.attempt_batch(jobs, in_batch_transaction)


@program
def batch_handler(execution: ProgramExecution) -> None:
    """A worker writes for two jobs in one transaction while one of them is taken over."""
    execution.enqueue(2)
    batch_holder(execution, "w1", in_batch_transaction)
    actors.add_clock(execution, only=1)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def batch_handler_step(execution: ProgramExecution) -> None:
    """A batch handler commits a fenced step; the lease of one job expires around it."""
    execution.enqueue(2)
    batch_holder(execution, "w1", in_batch_with_fenced_step)
    actors.add_clock(execution, only=1)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def batch_handlers(execution: ProgramExecution) -> None:
    """Two workers have the same two jobs as batches, after their leases have expired."""
    execution.enqueue(2)
    batch_holder(execution, "w1", in_batch_transaction)
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works_in_batches)


@program
def batch_handler_and_heartbeat(execution: ProgramExecution) -> None:
    """A batch handler commits during a heartbeat, while an operator cancels one job."""
    execution.enqueue(2)
    worker = batch_holder(execution, "w1", in_batch_transaction)
    add_heartbeat(worker)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_clock(execution, only=1)


@program
def batch_handler_isolated(execution: ProgramExecution) -> None:
    """A batch commits at REPEATABLE READ during a heartbeat and a cancellation."""
    execution.enqueue(2)
    worker = batch_holder(execution, "w1", in_batch_at_repeatable_read)
    add_heartbeat(worker)
    actors.add_operator(execution, "cancel", in_transaction=True)
    actors.add_clock(execution, only=1)


@program
def batch_handler_fails_one(execution: ProgramExecution) -> None:
    """A handler fails one job of its batch after it has written for both."""
    execution.enqueue(2)
    batch_holder(execution, "w1", failing_the_last)
    actors.add_clock(execution, only=0)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def batch_handler_crash(execution: ProgramExecution) -> None:
    """A worker is killed at any step of its batch; another worker takes over."""
    execution.enqueue(2)
    WorkerActor(execution, "w1", works_in_batches)
    actors.add_killer(execution, ["w1"])
    actors.add_clock(execution)
    WorkerActor(execution, "w2", works_in_batches)


@program
def batch_handler_lost_reply(execution: ProgramExecution) -> None:
    """The reply to a batch's COMMIT is lost; its worker asks whether it committed."""
    execution.enqueue(2)
    batch_holder(execution, "w1", in_batch_transaction)
    actors.add_network_fault(execution, "w1", RoundTripFault.LOSE_REPLY, at="COMMIT")
    actors.add_clock(execution, only=1)
    WorkerActor(execution, "w2", works(in_job_transaction))


@program
def batch_handler_late_commit(execution: ProgramExecution) -> None:
    """A batch's COMMIT arrives while its worker settles the jobs.

    An administrator may end the session before it arrives.
    """
    execution.enqueue(2)
    batch_holder(execution, "w1", in_batch_transaction)
    actors.add_network_fault(execution, "w1", RoundTripFault.DELIVER_LATE, at="COMMIT")
    actors.add_delayed_session_killer(execution, "w1")
    WorkerActor(execution, "w2", works(in_job_transaction))
