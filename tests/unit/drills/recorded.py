"""A recorded drill: its history and the state of its database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from faultline_drills.judging.checker import judge
from faultline_drills.recording.database_state import (
    DatabaseState,
    EffectFact,
    ExternalCall,
    JobFact,
    LedgerFact,
    Transition,
)
from faultline_drills.recording.history import History, Phase, Verb

PAID, DEAD = "paid", "dead"  # the two jobs of the drill below
LEASE_SECONDS = 10.0


@dataclass
class RecordedDrill:
    """The record of a drill, of which tests change one thing at a time."""

    history: History = field(default_factory=History)
    state: DatabaseState = field(default_factory=DatabaseState)

    def job(self, name: str, **changes: Any) -> None:
        jobs = tuple(replace(j, **changes) if j.id == name else j for j in self.state.jobs)
        self.state = replace(self.state, jobs=jobs)

    def step(self, number: int, **changes: Any) -> None:
        """Change the transition with this order number."""
        trail = tuple(
            replace(s, **changes) if s.order == number else s for s in self.state.transitions
        )
        self.state = replace(self.state, transitions=trail)

    def steps(self, *added: Transition) -> None:
        self.state = replace(self.state, transitions=self.state.transitions + added)

    def rows(self, **changes: Iterable[Any]) -> None:
        """Other rows for these tables."""
        self.state = replace(self.state, **{name: tuple(rows) for name, rows in changes.items()})

    def attempt(self, process: str, job: str, token: int, outcome: Phase) -> None:
        number = self.history.invoke(process, Verb.ATTEMPT, job=job, token=token)
        self.history.end(number, outcome)

    def submit(self, outcome: Phase, *, key: str | None = None, job: str | None = None) -> None:
        detail = {} if key is None else {"key": key}
        number = self.history.invoke("producer", Verb.SUBMIT, **detail)
        self.history.end(number, outcome, job=job, **detail)

    def retry(self, job: str, outcome: Phase, **detail: str) -> None:
        number = self.history.invoke("operator", Verb.RETRY, job=job)
        self.history.end(number, outcome, **detail)

    def rules(self) -> set[str]:
        """The names of the rules that are broken."""
        return {finding.rule for finding in judge(self.history, self.state).findings}


def step(
    order: int,
    job: str,
    before: str | None,
    after: str,
    token: int,
    *,
    attempts: int = 1,
    lease: str | None = None,
    at: float | None = None,
    transaction: int | None = None,
) -> Transition:
    at = float(order) if at is None else at
    return Transition(
        order=order,
        transaction=transaction or 100 + order,
        job=job,
        before=before,
        after=after,
        token=token,
        lease=lease if lease is not None else (f"{job}-{token}" if token else None),
        attempts=attempts,
        at=at,
        lease_expires_at=at + LEASE_SECONDS if after == "running" else None,
        ledger_insert_at=at if after == "succeeded" else None,
    )


def valid_drill() -> RecordedDrill:
    """A valid drill in which every rule has something to examine.

    `paid`: its first worker vanishes, the second one pays. `dead`: fails, is retried, and succeeds.
    """
    recorded = RecordedDrill()
    recorded.submit(Phase.OK, key="order-1", job=PAID)
    recorded.submit(Phase.OK, job=DEAD)
    for process, job, token, outcome in (
        ("w1", PAID, 1, Phase.INFO),
        ("w2", PAID, 2, Phase.OK),
        ("w1", DEAD, 1, Phase.FAIL),
        ("w2", DEAD, 2, Phase.OK),
    ):
        recorded.history.record(process, Verb.CLAIM, job=job, token=token)
        recorded.attempt(process, job, token, outcome)
    recorded.retry(DEAD, Phase.OK, state="queued")
    recorded.state = DatabaseState(
        jobs=(
            JobFact(PAID, "order-1", "succeeded", 2, 5, token=2, parts=2),
            JobFact(DEAD, None, "succeeded", 1, 1, token=2, parts=0),
        ),
        ledger=(LedgerFact(PAID, 2), LedgerFact(DEAD, 2)),
        effects=(
            EffectFact(6, 107, PAID, 2, part=1),
            EffectFact(6, 107, PAID, 2, part=2),
            EffectFact(3, 900, PAID, 1, part=0, is_step=True),
        ),
        transitions=(
            step(1, PAID, None, "queued", 0, attempts=0),
            step(2, PAID, "queued", "running", 1),
            step(4, PAID, "running", "queued", 1),
            step(5, PAID, "queued", "running", 2, attempts=2),
            step(7, PAID, "running", "succeeded", 2, attempts=2),
            step(11, DEAD, None, "queued", 0, attempts=0),
            step(12, DEAD, "queued", "running", 1),
            step(13, DEAD, "running", "failed", 1),
            step(14, DEAD, "failed", "queued", 1, attempts=0),
            step(15, DEAD, "queued", "running", 2),
            step(16, DEAD, "running", "succeeded", 2),
        ),
        external_calls=(
            ExternalCall(1, PAID, 1, PAID, accepted=True),
            ExternalCall(2, PAID, 2, PAID, accepted=True),
            ExternalCall(3, PAID, 1, PAID, accepted=False),
        ),
    )
    return recorded
