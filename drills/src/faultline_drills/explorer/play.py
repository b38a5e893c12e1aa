"""One schedule's cast: who takes part, what they were told, and what is left to whoever comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from uuid import UUID

from faultline import protocol
from faultline.database import run
from faultline.errors import FaultlineError
from faultline.model import Claim
from faultline_drills.explorer.gate import Gate, News
from faultline_drills.explorer.schedule import Performed, Step
from faultline_drills.explorer.scheduler import Actor, Decide, Performance
from faultline_drills.explorer.session import Session
from faultline_drills.explorer.stage import Stage
from faultline_drills.history import History, Phase, Verb

QUEUE = "explorer"
LEASE_SECONDS = 600.0  # no lease runs out by itself: the clock is an actor
FINISHER = "finisher"
_COMMITS = ("COMMIT", "commits a batch")
_ROUNDS = 6  # a job has at most five attempts
_END_EVERY_LEASE = """
    UPDATE faultline.jobs SET next_run_at = clock_timestamp(),
        lease_expires_at = CASE WHEN state = 'running' THEN clock_timestamp() END
    WHERE state IN ('queued', 'running')
"""


class Play:
    """What a program fills before the curtain, and the judge reads after it."""

    def __init__(self, stage: Stage) -> None:
        stage.clear()
        self.stage = stage
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.declared_dead: set[str] = set()
        self.job_ids: list[UUID] = []
        self._news: SimpleQueue[tuple[Gate, News]] = SimpleQueue()
        self._actors: list[Actor] = []

    # ── before ───────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, count: int = 1, *, parts: int = 1, max_attempts: int = 5) -> list[UUID]:
        """Jobs whose effect has so many rows; 0 for jobs that the worker commits by itself."""
        statement = protocol.enqueue_many(
            "explored",
            [{"parts": parts}] * count,
            queue=QUEUE,
            priority=5,
            max_attempts=max_attempts,
        )
        ids = [queued.job_id for queued in run(self.stage.author, statement)]
        for job_id in ids:
            self.history.saw("author", Verb.SUBMIT, job=str(job_id), token=None)
        self.job_ids += ids
        return ids

    def claimed(self, worker: str, count: int = 1) -> list[Claim]:
        """What a worker holds when the curtain rises, in the order of the jobs."""
        return sorted(self.claim_for(worker, count), key=lambda claim: claim.job_id)

    def claim_for(self, worker: str, count: int) -> list[Claim]:
        statement = protocol.claim(worker, [QUEUE], batch_size=count, lease_seconds=LEASE_SECONDS)
        claims = run(self.stage.author, statement)
        for claim in claims:
            self.saw_claim(worker, claim)
        return claims

    def saw_claim(self, worker: str, claim: Claim) -> None:
        self.history.saw(worker, Verb.CLAIM, job=str(claim.job_id), token=claim.fencing_token)

    def add(
        self, name: str, part: Callable[[], None], is_ready: Callable[[], bool] = lambda: True
    ) -> Gate:
        gate = Gate(name, self._news)
        self._actors.append(Actor(name, part, gate, is_ready))
        return gate

    def actor(self, name: str) -> Actor:
        return next(actor for actor in self._actors if actor.name == name)

    def gate_of(self, name: str) -> Gate:
        return self.actor(name).gate

    def session(self, owner: str, purpose: str = "main") -> Session:
        session = self.stage.session(owner, purpose)
        session.gate = self.gate_of(owner)
        return session

    # ── the schedule ─────────────────────────────────────────────────────────────────────────────

    def perform(self, decide: Decide, *, narrate: bool = False) -> Performed:
        standing = self.stage.standing if narrate else None
        performance = Performance(self._actors, self._news, self.stage.blocked, standing=standing)
        return performance.run(decide)

    # ── after ────────────────────────────────────────────────────────────────────────────────────

    def finish(self, performed: Performed) -> None:
        """Whoever comes next finishes what is left, with nothing but the protocol."""
        conn = self.stage.author
        for actor in self._actors:
            for session in self.stage.sessions_of(actor.name):
                if session.letter is not None:
                    session.letter.deliver()
                self.counts["faults"] += len(session.struck)
                self.counts["unknown_commits"] += sum(step in _COMMITS for step in session.struck)
                session.reset()
        for _ in range(_ROUNDS):
            if conn.execute(_END_EVERY_LEASE).rowcount == 0:
                return
            claims = self.claim_for(FINISHER, 10)
            for claim in claims:
                self._finish_job(claim)
            if claims and performed.steps:  # somebody reads along
                step = Step(FINISHER, "claims and commits what is left", "", self.stage.standing())
                performed.steps.append(step)

    def _finish_job(self, claim: Claim) -> None:
        conn, job, token = self.stage.author, str(claim.job_id), claim.fencing_token
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
