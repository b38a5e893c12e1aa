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
    caller: str = ""  # which process called


@dataclass(frozen=True, slots=True)
class Abandoned:
    """What a server had, and the one that took its place had not: an asynchronous standby, a backup.

    It excuses the loss of exactly this. And it is more that must not be seen again: a token that was
    given out over there must never be given out over here.
    """

    jobs: frozenset[str]
    claims: frozenset[tuple[str, int]]
    commits: frozenset[tuple[str, int]]

    @property
    def tokens(self) -> dict[str, tuple[int, int]]:
        """Per job, the lowest and the highest token that only the lost server knew of."""
        found: dict[str, tuple[int, int]] = {}
        for job, token in self.claims:
            lowest, highest = found.get(job, (token, token))
            found[job] = min(lowest, token), max(highest, token)
        return found

    @classmethod
    def between(cls, lost: World, successor: World) -> Abandoned:
        """`lost` when it was last seen, `successor` before anybody wrote to it."""
        return cls(
            jobs=frozenset({job.id for job in lost.jobs} - {job.id for job in successor.jobs}),
            claims=lost.claims - successor.claims,
            commits=lost.commits - successor.commits,
        )


@dataclass(frozen=True, slots=True)
class World:
    jobs: tuple[JobFact, ...] = ()
    ledger: tuple[LedgerFact, ...] = ()
    effects: tuple[EffectFact, ...] = ()
    trail: tuple[Transition, ...] = ()
    outside: tuple[OutsideCall, ...] = ()
    rejections: int = 0
    abandoned: tuple[Abandoned, ...] = ()

    @property
    def claims(self) -> frozenset[tuple[str, int]]:
        return frozenset(
            (step.job, step.token)
            for step in self.trail
            if (step.before, step.after) == ("queued", "running")
        )

    @property
    def commits(self) -> frozenset[tuple[str, int]]:
        return frozenset((entry.job, entry.token) for entry in self.ledger)
