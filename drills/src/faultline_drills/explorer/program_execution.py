"""One execution of a program: its actors, sessions, history and jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from uuid import UUID

import orjson

from faultline.errors import FaultlineError
from faultline.model import Claim, Enqueued, EnqueueOutcome, JobSpec
from faultline.postgres.sessions import Connection, run
from faultline.statements import protocol
from faultline.unique import Unique
from faultline_drills.explorer.explorer_database import ExplorerDatabase
from faultline_drills.explorer.interleaving import ExecutionRecord, Step
from faultline_drills.explorer.scheduler import ActorThread, Decide, StepScheduler
from faultline_drills.explorer.step_permit import ActorEvent, StepPermit
from faultline_drills.explorer.stepped_session import SteppedSession
from faultline_drills.recording.history import History, Phase, Verb

QUEUE = "explorer"
LEASE_SECONDS = 600.0  # leases expire only when the clock actor says so
FINISHER = "finisher"
_COMMIT_STEPS = ("COMMIT", "commits a batch")
_MAX_ROUNDS = 6  # a job has at most five attempts
_END_EVERY_LEASE = """
    UPDATE faultline.jobs SET next_run_at = clock_timestamp(),
        lease_expires_at = CASE WHEN state = 'running' THEN clock_timestamp() END
    WHERE state IN ('queued', 'running')
"""


class ProgramExecution:
    """Holds the jobs and actors that a program adds, and what the rules check."""

    def __init__(self, database: ExplorerDatabase) -> None:
        database.reset()
        self.database = database
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.declared_dead: set[str] = set()
        self.job_ids: list[UUID] = []
        # Of unique jobs: the payload that each claim got, and the payload that was stored last.
        self.claimed_payloads: list[tuple[str, str]] = []
        self.stored_payloads: dict[str, str] = {}
        self._events: SimpleQueue[tuple[StepPermit, ActorEvent]] = SimpleQueue()
        self._actors: list[ActorThread] = []

    # ── setup ────────────────────────────────────────────────────────────────────────────────────

    def enqueue(
        self, count: int = 1, *, parts: int = 1, max_attempts: int = 5, key: str | None = None
    ) -> list[UUID]:
        """Enqueue jobs whose effect has `parts` rows; 0: the worker commits them."""
        payload: dict[str, object] = {"parts": parts, **({} if key is None else {"key": key})}
        statement = protocol.enqueue_many(
            "explored",
            [payload] * count,
            queue=QUEUE,
            priority=5,
            max_attempts=max_attempts,
        )
        ids = [queued.job_id for queued in run(self.database.setup, statement)]
        for job_id in ids:
            self.history.record("setup", Verb.SUBMIT, job=str(job_id), token=None)
        self.job_ids += ids
        return ids

    def enqueue_unique(self, name: str, unique: Unique) -> Enqueued:
        """Enqueue the program's unique job before the run starts."""
        queued = self.submit_unique(self.database.setup, name, unique)
        self.stored(name, queued)
        self.job_ids.append(queued.job_id)
        return queued

    def submit_unique(self, conn: Connection, name: str, unique: Unique) -> Enqueued:
        """Enqueue under the program's one unique key; the payload says whose it is.

        `stored` must be called when the enqueue has been committed.
        """
        payload = {"parts": 1, "by": name, "key": 1}
        spec = JobSpec("explored", QUEUE, 5, 5, None, None, None, None, None, unique, None, payload)
        return run(conn, protocol.enqueue_job(spec))

    def stored(self, name: str, queued: Enqueued) -> None:
        job = str(queued.job_id)
        if queued.outcome is EnqueueOutcome.QUEUED:
            self.history.record(name, Verb.SUBMIT, job=job, token=None)
        if queued.outcome in (EnqueueOutcome.QUEUED, EnqueueOutcome.REPLACED):
            self.stored_payloads[job] = name

    def claimed(self, worker: str, count: int = 1) -> list[Claim]:
        """Claim jobs for a worker before the run starts, in the order of the jobs."""
        return sorted(self.claim_for(worker, count), key=lambda claim: claim.job_id)

    def claim_for(self, worker: str, count: int) -> list[Claim]:
        statement = protocol.claim(worker, [QUEUE], batch_size=count, lease_seconds=LEASE_SECONDS)
        claims = run(self.database.setup, statement)
        for claim in claims:
            self.saw_claim(worker, claim)
        return claims

    def saw_claim(self, worker: str, claim: Claim) -> None:
        self.saw_payload(claim)
        self.history.record(worker, Verb.CLAIM, job=str(claim.job_id), token=claim.fencing_token)

    def saw_payload(self, claim: Claim) -> None:
        if (by := orjson.loads(claim.payload_json).get("by")) is not None:
            self.claimed_payloads.append((claim.id, by))

    def add(
        self, name: str, actions: Callable[[], None], is_ready: Callable[[], bool] = lambda: True
    ) -> StepPermit:
        permit = StepPermit(name, self._events)
        self._actors.append(ActorThread(name, actions, permit, is_ready))
        return permit

    def actor(self, name: str) -> ActorThread:
        return next(actor for actor in self._actors if actor.name == name)

    def permit_of(self, name: str) -> StepPermit:
        return self.actor(name).permit

    def session(self, owner: str, purpose: str = "main") -> SteppedSession:
        session = self.database.session(owner, purpose)
        session.permit = self.permit_of(owner)
        return session

    # ── run ──────────────────────────────────────────────────────────────────────────────────────

    def run(self, decide: Decide, *, with_steps: bool = False) -> ExecutionRecord:
        describe_jobs = self.database.describe_jobs if with_steps else None
        scheduler = StepScheduler(
            self._actors, self._events, self.database.blocked, describe_jobs=describe_jobs
        )
        return scheduler.run(decide)

    # ── after ────────────────────────────────────────────────────────────────────────────────────

    def finish(self, record: ExecutionRecord) -> None:
        """Deliver delayed messages, then claim and commit the jobs that are left."""
        conn = self.database.setup
        for actor in self._actors:
            for session in self.database.sessions_of(actor.name):
                if session.delayed is not None:
                    session.delayed.deliver()
                self.counts["faults"] += len(session.fault_steps)
                self.counts["unknown_commits"] += sum(
                    step in _COMMIT_STEPS for step in session.fault_steps
                )
                session.reset()
        for _ in range(_MAX_ROUNDS):
            conn.execute("DELETE FROM faultline.limits")
            if conn.execute(_END_EVERY_LEASE).rowcount == 0:
                return
            claims = self.claim_for(FINISHER, 10)
            for claim in claims:
                self._finish_job(claim)
            if claims and record.steps:  # the steps are being recorded
                step = Step(
                    FINISHER, "claims and commits the rest", "", self.database.describe_jobs()
                )
                record.steps.append(step)

    def _finish_job(self, claim: Claim) -> None:
        conn, job, token = self.database.setup, str(claim.job_id), claim.fencing_token
        number = self.history.invoke(FINISHER, Verb.ATTEMPT, job=job, token=token)
        try:
            with conn.transaction():
                if '"parts": 1' in claim.payload_json:
                    conn.execute(
                        "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)", [job, token]
                    )
                run(conn, protocol.commit(claim))
        except FaultlineError:
            self.history.end(number, Phase.FAIL)
        else:
            self.history.end(number, Phase.OK)
