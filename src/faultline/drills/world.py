"""What the database holds after a drill, as plain facts for the checker. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class JobFact:
    id: str
    key: str | None
    state: str
    attempts: int
    max_attempts: int
    token: int
    parts: int  # how many rows its effect has when it is whole; 0 for a job without an effect


@dataclass(frozen=True, slots=True)
class LedgerFact:
    job: str
    token: int


@dataclass(frozen=True, slots=True)
class EffectFact:
    """One row that a handler wrote, and that was committed."""

    order: int  # drawn from the same sequence as the trail's; for a step, as it was about to commit
    transaction: int
    job: str
    token: int
    part: int
    is_step: bool = False  # committed under the fence in the middle of the job, which then went on


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a job's row, as a trigger of the drill's own saw it."""

    order: int
    transaction: int
    job: str
    before: str | None
    after: str
    token: int
    lease: UUID | str | None
    attempts: int
    at: float
    lease_expires_at: float | None
    entered_at: float | None = (
        None  # when its transaction last began to enter the ledger, if it did
    )


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A call that reached the system outside, which remembers the highest token per job."""

    order: int
    job: str
    token: int
    key: str  # what the outside knows repeated calls of one job by
    accepted: bool


@dataclass(frozen=True, slots=True)
class World:
    jobs: tuple[JobFact, ...] = ()
    ledger: tuple[LedgerFact, ...] = ()
    effects: tuple[EffectFact, ...] = ()
    trail: tuple[Transition, ...] = ()
    outside: tuple[OutsideCall, ...] = ()
    rejections: int = 0
