"""A worker as an actor, built from the library's own classes.

It claims through the protocol, its handlers get a real `Job`, and the worker's own execution,
outcomes and committer decide how an attempt ends. They are asynchronous, but nothing here makes
them wait for an event loop: each round trip blocks the actor's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

import psycopg

from faultline.attempt_transactions import AttemptTransactions
from faultline.batch import Batch, BatchJob
from faultline.batch_transactions import BatchTransactions
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.job import Job
from faultline.model import Claim
from faultline.postgres.errors import is_connection_lost
from faultline.postgres.outage import Outage
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import Connection, run
from faultline.retry_control import Snooze
from faultline.retry_policy import RetryDecision
from faultline.statements import protocol
from faultline.statements.statement import Statement
from faultline.steady import steady_now
from faultline.workers.attempt import Attempt, Raised, Returned
from faultline.workers.background import BackgroundTasks, Wakeup
from faultline.workers.batch_attempt import BatchAttempt
from faultline.workers.batch_execution import BatchExecution
from faultline.workers.committer import Committer
from faultline.workers.execution import Execution
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import HeldLeases, Lease
from faultline.workers.outcomes import Outcomes
from faultline.workers.progress_reports import ProgressReports
from faultline.workers.server_failure import ServerFailure
from faultline_drills.explorer.program_execution import LEASE_SECONDS, QUEUE, ProgramExecution
from faultline_drills.explorer.stepped_session import SteppedSession, SteppedSessionPool
from faultline_drills.recording.history import Phase, Verb

T = TypeVar("T")
Handler = Callable[["WorkerActor", Job], Any]
BatchHandler = Callable[["WorkerActor", Batch[Any]], Any]

_MAX_TRANSIENT_ERRORS = 20
_MAX_LOCKED_ROUNDS = 50


class RetriesExhausted(FaultlineError):
    """The library retried an operation that cannot succeed."""

    code = "explorer_impatient"


class SimulatedFailure(Exception):
    """The error that a failing handler raises."""


class SteppedReconnectingSession(ReconnectingSession):
    """Runs statements on an actor's session, and retries without a pause.

    Other actors decide when a retry can succeed.
    """

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
    """Run a coroutine that never waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise AssertionError("the coroutine waits for an event loop")


class _RecordingOutcomes(Outcomes):
    """Remembers how the worker thinks each attempt ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.exit_reasons: dict[Claim, str] = {}

    def finish(
        self, lease: Lease, *, exit_reason: str, retry_in_seconds: float | None = None
    ) -> None:
        self.exit_reasons.setdefault(lease.claim, exit_reason)
        super().finish(lease, exit_reason=exit_reason, retry_in_seconds=retry_in_seconds)


class _NoWakeup(Wakeup):
    """No claim loop waits here: the program says when an actor claims."""

    def set_in(self, seconds: float) -> None:
        pass


class _RunAtOnce(BackgroundTasks):
    """Runs a background task in the actor's thread instead of beside it."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        run_to_completion(coroutine)


class _RunningAttempt(NamedTuple):
    lease: Lease
    transactions: AttemptTransactions


class WorkerActor:
    def __init__(
        self, execution: ProgramExecution, name: str, actions: Callable[[WorkerActor], None]
    ) -> None:
        self.name = name
        self.execution = execution
        self.held_leases = HeldLeases()
        self._held: dict[Job, _RunningAttempt] = {}
        self._permit = execution.add(name, lambda: actions(self))
        self._session = execution.session(name)
        self._committer = Committer(
            self._open_session("committer"), batch_size=100, wakeup=_NoWakeup()
        )
        self._outcomes = _RecordingOutcomes(
            name,
            held_leases=self.held_leases,
            committer=self._committer,
            make_session=self._open_session,
            background=_RunAtOnce(_NoWakeup()),
            decide_retry=lambda claim, error: RetryDecision(0.0),
            wakeup=_NoWakeup(),
        )
        unused = cast(Any, None)
        self._execution = Execution(
            unused,
            self._outcomes,
            unused,
            attempts=set(),
            background=_RunAtOnce(_NoWakeup()),
            stopping=asyncio.Event(),
            server_failure=ServerFailure(Outage()),
            self_fencing=False,
        )
        self._batches = BatchExecution(
            unused,
            self._outcomes,
            unused,
            attempts=set(),
            background=_RunAtOnce(_NoWakeup()),
            stopping=asyncio.Event(),
            server_failure=ServerFailure(Outage()),
            self_fencing=False,
            progress=ProgressReports(self._open_session("progress")),
        )

    def _open_session(self, purpose: str, **_: Any) -> ReconnectingSession:
        return SteppedReconnectingSession(self.execution.session(self.name, purpose), purpose)

    def connection(self) -> Connection:
        """The connection for a transaction that the handler opens itself."""
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
            return []  # leases that it was given, if any, expire
        for claim in claims:
            self.execution.saw_payload(claim)
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
        self.held_leases.add(lease)
        self._permit.token = claim.fencing_token
        transactions = AttemptTransactions(claim, lease)
        job = Job(claim, lease, self._pool, None, transactions=transactions)
        self._held[job] = _RunningAttempt(lease, transactions)
        return job

    def _pool(self) -> Any:
        return SteppedSessionPool(self._session)

    # ── attempts ─────────────────────────────────────────────────────────────────────────────────

    def attempt(self, job: Job, handler: Handler) -> None:
        """Run the handler and settle its outcome, as `Execution` does."""
        self.attempt_all([job], handler)

    def attempt_all(self, jobs: list[Job], handler: Handler) -> None:
        """Run one attempt after another, then commit as one batch what is left."""
        numbers = {job: self._begin(job) for job in jobs}
        for job in jobs:
            attempt = self._attempt_of(job, handler)
            ending = run_to_completion(self._execution._run_handler(attempt))
            if not self._execution._commit_plain(attempt, ending):
                run_to_completion(self._execution._write_outcome(attempt, ending))
        self._flush()
        for job, number in numbers.items():
            self._end(job, number)

    def _attempt_of(self, job: Job, handler: Handler) -> Attempt:
        """The parts of an attempt that `Execution` uses.

        It may run the handler again after a conflict.
        """

        async def run_handler(tools: object) -> Returned | Raised:
            try:
                return Returned(handler(self, job))
            except (SimulatedFailure, FaultlineError, psycopg.OperationalError) as error:
                return Raised(error)  # any other error is a bug of the explorer

        held = self._held[job]
        parts = SimpleNamespace(
            job=job,
            claim=held.lease.claim,
            lease=held.lease,
            transactions=held.transactions,
            run=run_handler,
        )
        return cast(Attempt, parts)

    def attempt_batch(self, jobs: list[Job], handler: BatchHandler) -> None:
        """Run a batch handler until no job is left, and settle each, as a worker does."""
        numbers = {job: self._begin(job) for job in jobs}
        held = jobs
        while held:
            attempt = self._batch_attempt_of(held, handler)
            ending = run_to_completion(self._batches._run_handler(attempt))
            again = run_to_completion(self._batches.outcomes.write(attempt, ending))
            held = [job for job in held if self._held[job].lease in again]
        self._flush()
        for job, number in numbers.items():
            self._end(job, number)

    def _batch_attempt_of(self, jobs: list[Job], handler: BatchHandler) -> BatchAttempt:
        """The parts of a run of a batch handler that `BatchExecution` uses."""
        leases = [self._held[job].lease for job in jobs]
        claims = [lease.claim for lease in leases]
        made: dict[str, BatchJob[Any]] = {}
        transactions = BatchTransactions(
            claims, leases, lambda of: [made[claim.id].result for claim in of]
        )
        for lease in leases:
            made[lease.claim.id] = BatchJob(
                lease.claim,
                {},
                lease=lease,
                pool=self._pool,
                async_pool=None,
                transactions=transactions,
            )
        batch = Batch(list(made.values()), transactions, self._pool, None)

        async def run_handler(tools: object) -> Returned | Raised:
            try:
                return Returned(handler(self, batch))
            except (SimulatedFailure, FaultlineError, psycopg.OperationalError) as error:
                return Raised(error)

        parts = SimpleNamespace(
            task=SimpleNamespace(name="explored"),
            batch=batch,
            claim=claims[0],
            lease=leases[0],
            leases=tuple(leases),
            transactions=transactions,
            batch_transactions=transactions,
            run=run_handler,
        )
        return cast(BatchAttempt, parts)

    def _flush(self) -> None:
        waiting = list(self._committer._waiting)
        self._committer._waiting.clear()
        for _ in range(_MAX_LOCKED_ROUNDS):
            if not waiting:
                return
            waiting = run_to_completion(self._committer._commit(waiting))
            self._permit.yields_turn = True  # the committer pauses until the rows' holder has moved
        raise RetriesExhausted("the rows of a batch stay locked")

    def fail(self, job: Job, error: Exception) -> None:
        number = self._begin(job)
        run_to_completion(self._outcomes.fail(self._held[job].lease, error))
        self._end(job, number)

    def release(self, job: Job) -> None:
        number = self._begin(job)
        run_to_completion(self._outcomes.release(self._held[job].lease))
        self._end(job, number)

    def _begin(self, job: Job) -> int:
        return self.execution.history.invoke(
            self.name, Verb.ATTEMPT, job=str(job.id), token=job.token
        )

    def _end(self, job: Job, number: int) -> None:
        exit_reason = self._outcomes.exit_reasons[self._held[job].lease.claim]
        self.execution.counts["stale_rejections"] += exit_reason == "stale"
        phase = Phase.OK if exit_reason == "success" else Phase.FAIL
        self.execution.history.end(number, phase, exit_reason=exit_reason)
        self._permit.note("committed" if exit_reason == "success" else exit_reason)


def add_heartbeat(worker: WorkerActor, beats: int = 1) -> None:
    """Add the worker's heartbeat as an actor with its own session."""
    name = f"{worker.name}-heartbeat"
    settings = WorkerSettings(worker_id=worker.name, lease_seconds=LEASE_SECONDS)

    def beat() -> None:
        heartbeat = Heartbeat("", settings, worker.held_leases)
        for _ in range(beats):
            heartbeat._conn = session.connection()
            heartbeat._beat()

    worker.execution.add(name, beat)
    session = worker.execution.session(name)


# ── handlers ─────────────────────────────────────────────────────────────────────────────────────


def write_effect(conn: Connection, job: Job, *, is_step: bool = False) -> None:
    conn.execute(
        "INSERT INTO drill.effects (job_id, token, is_step) VALUES (%s, %s, %s)",
        [job.id, job.token, is_step],
    )


def in_job_transaction(worker: WorkerActor, job: Job) -> None:
    with job.transaction() as tx:
        write_effect(tx, job)


def in_repeatable_read(worker: WorkerActor, job: Job) -> None:
    with job.transaction(isolation=psycopg.IsolationLevel.REPEATABLE_READ) as tx:
        write_effect(tx, job)


def in_own_transaction(worker: WorkerActor, job: Job) -> None:
    conn = worker.connection()
    with conn.transaction():
        write_effect(conn, job)
        job.commit(conn)


def with_fenced_step(worker: WorkerActor, job: Job) -> None:
    with job.fenced() as tx:
        write_effect(tx, job, is_step=True)
    in_job_transaction(worker, job)


def without_writes(worker: WorkerActor, job: Job) -> None:
    """The worker commits the job."""


def snoozes(worker: WorkerActor, job: Job) -> None:
    raise Snooze(seconds=60)


def fails(worker: WorkerActor, job: Job) -> None:
    raise SimulatedFailure("the handler failed")


# ── batch handlers ───────────────────────────────────────────────────────────────────────────────


def in_batch_transaction(worker: WorkerActor, batch: Batch[Any]) -> None:
    with batch.transaction() as tx:
        for job in batch:
            write_effect(tx, job)


def in_batch_with_fenced_step(worker: WorkerActor, batch: Batch[Any]) -> None:
    with batch.fenced() as tx:
        for job in batch:
            write_effect(tx, job, is_step=True)
    in_batch_transaction(worker, batch)


def in_batch_at_repeatable_read(worker: WorkerActor, batch: Batch[Any]) -> None:
    with batch.transaction(isolation=psycopg.IsolationLevel.REPEATABLE_READ) as tx:
        for job in batch:
            write_effect(tx, job)


def failing_the_last(worker: WorkerActor, batch: Batch[Any]) -> None:
    """Write for all jobs, then fail one of two: its write must not be committed."""
    with batch.transaction() as tx:
        for job in batch:
            write_effect(tx, job)
        if len(batch) > 1:
            batch.fail(batch.jobs[-1], SimulatedFailure("the handler failed one job"))
