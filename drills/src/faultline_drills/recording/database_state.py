"""What the database holds after a drill, as plain facts for the rules. No I/O."""

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
    parts: int  # the number of rows of its complete effect; 0 for a job without an effect


@dataclass(frozen=True, slots=True)
class LedgerFact:
    job: str
    token: int


@dataclass(frozen=True, slots=True)
class EffectFact:
    """One row that a handler wrote and committed."""

    order: int  # from the same sequence as the transitions'; of a step, drawn at its commit
    transaction: int
    job: str
    token: int
    part: int
    is_step: bool = False  # committed under the fence before the job's own commit


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a job's row, recorded by the drill's own trigger."""

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
    # When its transaction last began an INSERT into the ledger, if it did.
    ledger_insert_at: float | None = None


@dataclass(frozen=True, slots=True)
class ExternalCall:
    """A call to the external store, which remembers the highest token per job."""

    order: int
    job: str
    token: int
    key: str  # the idempotency key
    accepted: bool
    caller: str = ""  # the calling process


@dataclass(frozen=True, slots=True)
class LostState:
    """What a lost server had and its successor (a lagging standby, a backup) lacks.

    The rules excuse the loss of exactly this. A token that the lost server issued must still never be
    issued by the successor.
    """

    jobs: frozenset[str]
    claims: frozenset[tuple[str, int]]
    commits: frozenset[tuple[str, int]]

    @property
    def tokens(self) -> dict[str, tuple[int, int]]:
        """Per job, the lowest and the highest token that only the lost server issued."""
        found: dict[str, tuple[int, int]] = {}
        for job, token in self.claims:
            lowest, highest = found.get(job, (token, token))
            found[job] = min(lowest, token), max(highest, token)
        return found

    @classmethod
    def between(cls, lost: DatabaseState, successor: DatabaseState) -> LostState:
        """From the last state of `lost`, and the first state of `successor`."""
        return cls(
            jobs=frozenset({job.id for job in lost.jobs} - {job.id for job in successor.jobs}),
            claims=lost.claims - successor.claims,
            commits=lost.commits - successor.commits,
        )


@dataclass(frozen=True, slots=True)
class DatabaseState:
    jobs: tuple[JobFact, ...] = ()
    ledger: tuple[LedgerFact, ...] = ()
    effects: tuple[EffectFact, ...] = ()
    transitions: tuple[Transition, ...] = ()
    external_calls: tuple[ExternalCall, ...] = ()
    rejections: int = 0
    lost_states: tuple[LostState, ...] = ()

    @property
    def claims(self) -> frozenset[tuple[str, int]]:
        return frozenset(
            (each.job, each.token)
            for each in self.transitions
            if (each.before, each.after) == ("queued", "running")
        )

    @property
    def commits(self) -> frozenset[tuple[str, int]]:
        return frozenset((entry.job, entry.token) for entry in self.ledger)
