"""The part of a worker, played by the library's own classes.

Claims are the protocol's, handlers get a real `Job`, and how an attempt ends is decided by the
worker's own executor, settlement and committer. They are asynchronous, but nothing here makes them
wait for an event loop: each round trip is taken in the actor's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import psycopg

from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.job import Job
from faultline.model import Claim
from faultline.postgres.errors import is_connection_lost
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import Connection, run
from faultline.statements import protocol
from faultline.statements.statement import Statement
from faultline.steady import steady_now
from faultline.workers.attempt import Attempt, Raised, Returned
from faultline.workers.committer import Committer
from faultline.workers.execution import Execution
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import Lease, LeaseBook
from faultline.workers.outcomes import Outcomes
from faultline_drills.explorer.program_execution import LEASE_SECONDS, QUEUE, ProgramExecution
from faultline_drills.explorer.stepped_session import SteppedSession, SteppedSessionPool
from faultline_drills.recording.history import Phase, Verb

T = TypeVar("T")
Handler = Callable[["WorkerActor", Job], Any]

_MAX_TRANSIENT_ERRORS = 20  # transient errors in a row: here each has one cause, and it passes
_MAX_LOCKED_ROUNDS = 50


class RetriesExhausted(FaultlineError):
    """The library went on trying what cannot succeed."""

    code = "explorer_impatient"


class SimulatedFailure(Exception):
    """What a handler raises of its own accord."""


class SteppedLink(ReconnectingSession):
    """A link over an actor's session. It never pauses: other actors decide when things have changed."""

    def __init__(self, session: SteppedSession, purpose: str) -> None:
        super().__init__("", purpose=purpose)
        self._session = session
        self._pauses = 0

    async def run(self, statement: Statement[T]) -> T:
        return run(self._session.connection(), statement)

    async def pause(self, error: BaseException, **_: Any) -> None:
        self._pauses += 1
        if self._pauses > _MAX_TRANSIENT_ERRORS:
            raise RetriesExhausted(f"{self.purpose}: {error}") from error

    async def drop(self) -> None:
        return None

    close = drop


def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Run what never waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise AssertionError("it waits for an event loop")


class _RecordingSettlement(Outcomes):
    """Remembers what the worker came to believe of each attempt."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told: dict[Claim, str] = {}

    def finish(self, lease: Lease, *, exit_reason: str) -> None:
        self.told.setdefault(lease.claim, exit_reason)
        super().finish(lease, exit_reason=exit_reason)


class WorkerActor:
    def __init__(
        self, execution: ProgramExecution, name: str, part: Callable[[WorkerActor], None]
    ) -> None:
        self.name = name
        self.execution = execution
        self.book = LeaseBook()
        self._permit = execution.add(name, lambda: part(self))
        self._session = execution.session(name)
        self._committer = Committer(
            self._link("committer"), batch_size=100, on_flushed=lambda: None
        )
        self._settlement = _RecordingSettlement(
            name,
            book=self.book,
            committer=self._committer,
            make_link=self._link,
            spawn=run_to_completion,
            retry_seconds=lambda claim: 0.0,
            wake_in=lambda seconds: None,
        )
        unused = cast(Any, None)
        self._executor = Execution(
            unused, self._settlement, unused, self_fencing=False, spawn=run_to_completion
        )

    def _link(self, purpose: str, **_: Any) -> ReconnectingSession:
        return SteppedLink(self.execution.session(self.name, purpose), purpose)

    def connection(self) -> Connection:
        """For a transaction that the handler owns."""
        return self._session.connection()

    # ── claiming ─────────────────────────────────────────────────────────────────────────────────

    def claim(self, batch_size: int = 1) -> list[Job]:
        number = self.execution.history.invoke(self.name, Verb.CLAIM)
        statement = protocol.claim(
            self.name, [QUEUE], batch_size=batch_size, lease_seconds=LEASE_SECONDS
        )
        try:
            claims = run(self.connection(), statement)
        except psycopg.OperationalError as error:
            if not is_connection_lost(error):
                raise
            return []  # what it was given, if anything, runs out
        for claim in claims:
            self.execution.history.end(
                number, Phase.OK, job=str(claim.job_id), token=claim.fencing_token
            )
            number = self.execution.history.invoke(self.name, Verb.CLAIM)
        self.execution.history.end(number, Phase.FAIL)
        self._permit.note(
            ", ".join(f"token {claim.fencing_token}" for claim in claims) or "nothing"
        )
        return [self.hold(claim) for claim in claims]

    def hold(self, claim: Claim) -> Job:
        lease = Lease(claim, sent_at=steady_now(), lease_seconds=LEASE_SECONDS)
        self.book.add(lease)
        self._permit.token = claim.fencing_token
        return Job(claim, lease, self._pool, None)

    def _pool(self) -> Any:
        return SteppedSessionPool(self._session)

    # ── attempts ─────────────────────────────────────────────────────────────────────────────────

    def attempt(self, job: Job, handler: Handler) -> None:
        """As the executor does it: run the handler, look at how it ended, have that settled."""
        self.attempt_all([job], handler)

    def attempt_all(self, jobs: list[Job], handler: Handler) -> None:
        """Each by itself; what they leave to the worker is committed in one batch."""
        numbers = {job: self._begin(job) for job in jobs}
        for job in jobs:
            attempt = self._attempt_of(job, handler)
            ending = run_to_completion(self._executor._run_handler(attempt))
            run_to_completion(self._executor._settle(attempt, ending))
        self._flush()
        for job, number in numbers.items():
            self._end(job, number)

    def _attempt_of(self, job: Job, handler: Handler) -> Attempt:
        """All that the executor looks at. It may run the handler again after a conflict."""

        async def run_handler(tools: object) -> Returned | Raised:
            try:
                return Returned(handler(self, job))
            except (SimulatedFailure, FaultlineError, psycopg.OperationalError) as error:
                return Raised(error)  # any other is a fault of the explorer's own

        parts = SimpleNamespace(job=job, claim=job._claim, lease=job._lease, run=run_handler)
        return cast(Attempt, parts)

    def _flush(self) -> None:
        waiting = list(self._committer._waiting)
        self._committer._waiting.clear()
        for _ in range(_MAX_LOCKED_ROUNDS):
            if not waiting:
                return
            waiting = run_to_completion(self._committer._commit(waiting))
            self._permit.yields_turn = (
                True  # the committer pauses: whoever holds the rows goes first
            )
        raise RetriesExhausted("a batch stays locked")

    def give_up(self, job: Job, error: Exception) -> None:
        """Report a failure."""
        number = self._begin(job)
        run_to_completion(self._settlement.fail(cast(Lease, job._lease), error))
        self._end(job, number)

    def release(self, job: Job) -> None:
        number = self._begin(job)
        run_to_completion(self._settlement.release(cast(Lease, job._lease)))
        self._end(job, number)

    def _begin(self, job: Job) -> int:
        return self.execution.history.invoke(
            self.name, Verb.ATTEMPT, job=str(job.id), token=job.token
        )

    def _end(self, job: Job, number: int) -> None:
        told = self._settlement.told[job._claim]
        self.execution.counts["stale_rejections"] += told == "stale"
        phase = Phase.OK if told == "success" else Phase.FAIL
        self.execution.history.end(number, phase, exit_reason=told)
        self._permit.note({"success": "committed", "stale": "stale: stands aside"}.get(told, told))


def add_heartbeat(worker: WorkerActor, beats: int = 1) -> None:
    """The worker's own heartbeat thread, over a session of its own."""
    name = f"{worker.name}-heartbeat"
    settings = WorkerSettings(worker_id=worker.name, lease_seconds=LEASE_SECONDS)

    def part() -> None:
        heartbeat = Heartbeat("", settings, worker.book)
        for _ in range(beats):
            heartbeat._conn = session.connection()
            heartbeat._beat()

    worker.execution.add(name, part)
    session = worker.execution.session(name)


# ── what handlers do ─────────────────────────────────────────────────────────────────────────────


def write_effect(conn: Connection, job: Job, *, is_step: bool = False) -> None:
    conn.execute(
        "INSERT INTO drill.effects (job_id, token, is_step) VALUES (%s, %s, %s)",
        [job.id, job.token, is_step],
    )


def in_its_transaction(worker: WorkerActor, job: Job) -> None:
    with job.transaction() as tx:
        write_effect(tx, job)


def in_one_snapshot(worker: WorkerActor, job: Job) -> None:
    with job.transaction(isolation=psycopg.IsolationLevel.REPEATABLE_READ) as tx:
        write_effect(tx, job)


def in_a_transaction_of_its_own(worker: WorkerActor, job: Job) -> None:
    conn = worker.connection()
    with conn.transaction():
        write_effect(conn, job)
        job.commit(conn)


def with_a_step_before(worker: WorkerActor, job: Job) -> None:
    with job.fenced() as tx:
        write_effect(tx, job, is_step=True)
    in_its_transaction(worker, job)


def without_writes(worker: WorkerActor, job: Job) -> None:
    """The worker commits it."""


def in_vain(worker: WorkerActor, job: Job) -> None:
    raise SimulatedFailure("in vain")
