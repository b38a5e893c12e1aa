"""The stories that are explored: small casts whose every meeting on a job's row is worth a look.

Each function sets the scene; its docstring is the story. Who moves when is the explorer's business.
"""

from __future__ import annotations

from collections.abc import Callable

from faultline_drills.explorer import others
from faultline_drills.explorer.play import Play
from faultline_drills.explorer.session import Fault
from faultline_drills.explorer.worker import (
    Handler,
    Worker,
    heartbeat_of,
    in_a_transaction_of_its_own,
    in_its_transaction,
    in_one_snapshot,
    in_vain,
    with_a_step_before,
    without_writes,
)

Program = Callable[[Play], None]
PROGRAMS: dict[str, Program] = {}
BATCH = "commits a batch"


def program(function: Program) -> Program:
    PROGRAMS[function.__name__.replace("_", "-")] = function
    return function


def story_of(name: str) -> str:
    return " ".join((PROGRAMS[name].__doc__ or "").split())


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def works(handler: Handler, *, rounds: int = 1) -> Callable[[Worker], None]:
    def part(worker: Worker) -> None:
        for _ in range(rounds):
            for job in worker.claim():
                worker.attempt(job, handler)

    return part


def holder(play: Play, name: str, handler: Handler, *, count: int = 1) -> Worker:
    """A worker that holds its jobs when the curtain rises."""

    def part(worker: Worker) -> None:
        worker.attempt_all(jobs, handler)

    worker = Worker(play, name, part)
    jobs = [worker.hold(claim) for claim in play.claimed(name, count)]
    return worker


# ── take-over ────────────────────────────────────────────────────────────────────────────────────


@program
def take_over(play: Play) -> None:
    """A worker holds a job, the lease runs out, and another worker takes the job over."""
    play.enqueue()
    holder(play, "w1", in_its_transaction)
    Worker(play, "w2", works(in_its_transaction))
    others.clock(play)


@program
def own_transaction(play: Play) -> None:
    """The first worker commits in a transaction that its handler owns, while a reconciler gives the job
    back and another worker takes it."""
    play.enqueue()
    holder(play, "w1", in_a_transaction_of_its_own)
    Worker(play, "w2", works(in_its_transaction))
    others.reconciler(play)
    others.clock(play)


@program
def three_workers(play: Play) -> None:
    """Three workers want one job, and its lease runs out twice."""
    play.enqueue()
    Worker(play, "w1", works(in_its_transaction))
    Worker(play, "w2", works(in_its_transaction))
    Worker(play, "w3", works(in_a_transaction_of_its_own))
    others.clock(play, times=2)


@program
def heartbeat(play: Play) -> None:
    """A heartbeat races with the reconciler that wants to give its job back, and with its own worker's
    commit; another worker waits for the job."""
    play.enqueue()
    worker = holder(play, "w1", in_its_transaction)
    heartbeat_of(worker, beats=2)
    others.clock(play)
    others.reconciler(play)
    Worker(play, "w2", works(in_its_transaction))


@program
def late_heartbeat(play: Play) -> None:
    """A worker that has lost its job goes on renewing it, while the next one holds it."""
    play.enqueue()
    worker = Worker(play, "w1", lambda worker: None)
    for claim in play.claimed("w1"):
        worker.hold(claim)
    heartbeat_of(worker, beats=2)
    Worker(play, "w2", works(in_a_transaction_of_its_own))
    others.clock(play, times=2)


@program
def late_failure(play: Play) -> None:
    """A worker reports a failure after its job was taken over."""
    play.enqueue()
    holder(play, "w1", in_vain)
    Worker(play, "w2", works(in_its_transaction))
    others.clock(play)


@program
def late_release(play: Play) -> None:
    """A worker that is told to leave hands its job back after it was taken over."""
    play.enqueue()

    def leaves(worker: Worker) -> None:
        for job in jobs:
            worker.release(job)

    worker = Worker(play, "w1", leaves)
    jobs = [worker.hold(claim) for claim in play.claimed("w1")]
    Worker(play, "w2", works(in_its_transaction))
    others.clock(play)


@program
def one_snapshot(play: Play) -> None:
    """A worker commits at REPEATABLE READ while its heartbeat renews and an operator wants to cancel."""
    play.enqueue()
    worker = holder(play, "w1", in_one_snapshot)
    heartbeat_of(worker)
    others.operator(play, "cancel", in_transaction=True)
    others.clock(play)


@program
def believed_dead(play: Play) -> None:
    """A reconciler takes a living worker for dead and gives its job away in a transaction of its own,
    while the worker commits."""
    play.enqueue()
    holder(play, "w1", in_a_transaction_of_its_own)
    others.undertaker(play, "w1")
    Worker(play, "w2", works(in_its_transaction))


@program
def reconcilers(play: Play) -> None:
    """Three reconcilers meet over one expired lease, while its worker commits."""
    play.enqueue()
    holder(play, "w1", in_its_transaction)
    others.clock(play)
    others.reconciler(play, "reconciler-1")
    others.reconciler(play, "reconciler-2")
    others.reconciler(play, "reconciler-3")


# ── operators and producers ──────────────────────────────────────────────────────────────────────


@program
def cancel(play: Play) -> None:
    """An operator cancels the job in a transaction of theirs, while a worker commits it."""
    play.enqueue()
    holder(play, "w1", in_a_transaction_of_its_own)
    others.operator(play, "cancel", in_transaction=True)
    Worker(play, "w2", works(in_its_transaction))


@program
def cancel_of_the_expired(play: Play) -> None:
    """An operator cancels a job whose lease has run out, while a reconciler gives it back and its
    worker reports a failure."""
    play.enqueue()
    holder(play, "w1", in_vain)
    others.clock(play)
    others.operator(play, "cancel", in_transaction=True)
    others.reconciler(play)


@program
def retry(play: Play) -> None:
    """An operator cancels a job and has it run again, while its first worker still tries to commit."""
    play.enqueue()
    holder(play, "w1", in_its_transaction)
    others.operator(play, "cancel", "retry")
    Worker(play, "w2", works(in_its_transaction))


@program
def last_attempt(play: Play) -> None:
    """The lease of a job's last attempt runs out: it is buried or committed, never both."""
    play.enqueue(max_attempts=1)
    holder(play, "w1", in_its_transaction)
    others.clock(play)
    others.reconciler(play)
    others.operator(play, "retry")


@program
def one_key(play: Play) -> None:
    """Three producers submit one piece of work under one key, two of them in transactions of theirs."""
    others.producer(play, "producer-1", "order-1", in_transaction=True)
    others.producer(play, "producer-2", "order-1", in_transaction=True)
    others.producer(play, "producer-3", "order-1")
    Worker(play, "w1", works(in_a_transaction_of_its_own))


# ── batches ──────────────────────────────────────────────────────────────────────────────────────


@program
def batch(play: Play) -> None:
    """A worker commits two jobs as one batch, while the lease of one of them runs out and another
    worker takes it."""
    play.enqueue(2, parts=0)
    holder(play, "w1", without_writes, count=2)
    others.clock(play, only=0)
    Worker(play, "w2", works(without_writes))


@program
def batch_and_heartbeat(play: Play) -> None:
    """A batch is committed while its worker's heartbeat renews and an operator holds one of the rows."""
    play.enqueue(2, parts=0)
    worker = holder(play, "w1", without_writes, count=2)
    heartbeat_of(worker)
    others.operator(play, "cancel", in_transaction=True)
    others.clock(play, only=1)


@program
def fair_shares(play: Play) -> None:
    """Three workers claim two jobs, one of them inside a transaction of its own."""
    play.enqueue(2)
    Worker(play, "w1", works(in_its_transaction))
    Worker(play, "w2", works(in_its_transaction))
    others.bare_client(play, "psql")


@program
def bare_clients(play: Play) -> None:
    """Two clients with nothing but SQL claim inside transactions, and the lease runs out."""
    play.enqueue()
    others.bare_client(play, "psql-1")
    others.bare_client(play, "psql-2")
    others.clock(play)


@program
def repeated_commit(play: Play) -> None:
    """A client sends its commit again whatever it was told, and its job is taken over meanwhile."""
    play.enqueue()
    (claim,) = play.claimed("w1")
    others.repeater(play, "w1", claim)
    others.clock(play)
    Worker(play, "w2", works(in_its_transaction))


@program
def step_before(play: Play) -> None:
    """A handler commits a fenced step in the middle of its job; the lease runs out around it."""
    play.enqueue()
    holder(play, "w1", with_a_step_before)
    others.clock(play)
    Worker(play, "w2", works(in_its_transaction))


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


@program
def crash(play: Play) -> None:
    """A worker is killed at any of its steps, from its claim on; another one takes over."""
    play.enqueue()
    Worker(play, "w1", works(in_its_transaction))
    others.killer(play, ["w1"])
    others.clock(play)
    Worker(play, "w2", works(in_its_transaction))


@program
def ended_session(play: Play) -> None:
    """The server ends a worker's session at any step; the worker lives on and settles its attempt."""
    play.enqueue()
    holder(play, "w1", in_its_transaction)
    others.cutter(play, "w1")
    others.clock(play)
    Worker(play, "w2", works(in_its_transaction))


@program
def lost_answer(play: Play) -> None:
    """The answer to a COMMIT is lost, and the worker finds out what became of it."""
    play.enqueue()
    holder(play, "w1", in_its_transaction)
    others.network(play, "w1", Fault.LOSES_THE_ANSWER, at="COMMIT")
    others.clock(play)
    Worker(play, "w2", works(in_its_transaction))


@program
def late_commit(play: Play) -> None:
    """A worker loses its connection when it sends its COMMIT, which arrives while it settles the
    attempt, unless an administrator ends the session first."""
    play.enqueue()
    holder(play, "w1", in_a_transaction_of_its_own)
    others.network(play, "w1", Fault.DELIVERS_LATE, at="COMMIT")
    others.cutter_of_the_late(play, "w1")
    Worker(play, "w2", works(in_its_transaction))


@program
def lost_batch(play: Play) -> None:
    """The answer to a batch is lost, and the committer sends the batch again."""
    play.enqueue(2, parts=0)
    holder(play, "w1", without_writes, count=2)
    others.network(play, "w1", Fault.LOSES_THE_ANSWER, at=BATCH, purpose="committer")
    others.clock(play, only=0)
    Worker(play, "w2", works(without_writes))


@program
def late_batch(play: Play) -> None:
    """A batch arrives after the committer has sent it again."""
    play.enqueue(2, parts=0)
    holder(play, "w1", without_writes, count=2)
    others.network(play, "w1", Fault.DELIVERS_LATE, at=BATCH, purpose="committer")
    others.clock(play, only=0)
    Worker(play, "w2", works(without_writes))


@program
def any_lost_answer(play: Play) -> None:
    """Any one answer is lost, from that to the claim on: then nobody knows of the lease until it runs
    out."""
    play.enqueue()
    Worker(play, "w1", works(in_its_transaction))
    others.network(play, "w1", Fault.LOSES_THE_ANSWER)
    others.clock(play)
    Worker(play, "w2", works(in_its_transaction))
