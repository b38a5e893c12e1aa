"""Rules for which one must know which actor made each change. Pure.

The checker's rules look at the jobs' final states. These rules look at every step on the way: which
actor changed a lease, whether the lease had expired, which statement waited for a lock, and which
error the code met.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from faultline_drills.explorer.explorer_database import TransitionWriters, UniqueFact
from faultline_drills.explorer.interleaving import ExecutionRecord
from faultline_drills.explorer.limit_rules import (
    LimitFacts,
    no_more_run_than_the_limit,
    places_belong_to_running_jobs,
    waiting_jobs_are_in_line,
)
from faultline_drills.explorer.schedule_rules import ScheduleFacts, broken_firings
from faultline_drills.judging.checker import DrillFinding
from faultline_drills.recording.database_state import DatabaseState, Transition
from faultline_drills.recording.history import History, Phase, Verb

_UNRESTRICTED_WRITERS = ("setup", "clock")
# Steps that skip locked rows. One that waited would delay every other job of its worker.
_NEVER_WAIT = ("claims", "renews its leases", "commits a batch", "reconciles expired leases")


@dataclass(frozen=True)
class Evidence:
    history: History
    state: DatabaseState
    writers: TransitionWriters
    record: ExecutionRecord
    declared_dead: Collection[str]
    limits: LimitFacts = field(default_factory=LimitFacts)
    schedules: ScheduleFacts = field(default_factory=ScheduleFacts)
    manual_firings: int = 0  # that operators asked for
    unique_jobs: Mapping[str, UniqueFact] = field(default_factory=dict)
    claimed_payloads: Sequence[tuple[str, str]] = ()
    stored_payloads: Mapping[str, str] = field(default_factory=dict)

    def steps(self) -> Iterator[tuple[Transition, Transition]]:
        """Each transition of a job, with the one before it."""
        by_job: dict[str, list[Transition]] = defaultdict(list)
        for step in sorted(self.state.transitions, key=lambda step: step.order):
            by_job[step.job].append(step)
        for steps in by_job.values():
            yield from pairwise(steps)


def findings_of(evidence: Evidence) -> list[DrillFinding]:
    rules = (
        only_the_holder_moves_a_lease,
        no_commit_after_expiry,
        skip_locked_never_waits,
        limits_hold,
        each_planned_time_fires_once,
        one_job_counts_for_a_unique_key,
        the_last_payload_runs,
        no_deadlock,
        no_unexpected_error,
    )
    return [DrillFinding(rule.__name__, text) for rule in rules for text in rule(evidence)]


def only_the_holder_moves_a_lease(evidence: Evidence) -> Iterator[str]:
    """Only the holder renews or ends a lease.

    Others may reconcile it if it has expired or its worker died.
    """
    given = _tokens_given(evidence.history)
    for before, step in evidence.steps():
        if before.after != "running" or (step.after == "running" and step.token != before.token):
            continue
        writer = evidence.writers.of(step.order)
        owner = writer.removesuffix("-heartbeat")
        if writer in _UNRESTRICTED_WRITERS or before.token in given[step.job].get(owner, ()):
            continue
        is_reconciled = step.after in ("queued", "failed")
        if writer == "operator" and step.after == "failed":
            continue
        may_be_dead = writer == "mistaken-reconciler" and evidence.declared_dead
        if is_reconciled and (may_be_dead or _has_expired(before, step)):
            continue
        verb = "renewed" if step.after == "running" else f"made {step.after}"
        yield (
            f"job {step.job}: the lease under token {before.token} was {verb} by {writer},"
            " which does not hold it"
        )


def no_commit_after_expiry(evidence: Evidence) -> Iterator[str]:
    for before, step in evidence.steps():
        if (before.after, step.after) == ("running", "succeeded") and _has_expired(before, step):
            yield f"job {step.job}: committed under token {step.token} after its lease had expired"


def skip_locked_never_waits(evidence: Evidence) -> Iterator[str]:
    for name, step in evidence.record.lock_waits:
        if step == "claims" and evidence.limits.are_used:
            continue  # a claim waits a moment for another one that decides about the same limit
        if step in _NEVER_WAIT:
            yield f"{name} {step} and waited for a lock"


def limits_hold(evidence: Evidence) -> Iterator[str]:
    if evidence.limits.are_used:
        yield from no_more_run_than_the_limit(evidence.state.transitions, evidence.limits)
        yield from places_belong_to_running_jobs(evidence.limits)
        yield from waiting_jobs_are_in_line(evidence.limits)


def each_planned_time_fires_once(evidence: Evidence) -> Iterator[str]:
    yield from broken_firings(evidence.schedules, evidence.manual_firings)


def one_job_counts_for_a_unique_key(evidence: Evidence) -> Iterator[str]:
    """At most one job waits for its first claim, or is unfinished.

    A producer that takes the key over has seen the end of its former holder, so its insert comes later
    in the order of the transitions too.
    """
    counting: set[str] = set()
    for step in sorted(evidence.state.transitions, key=lambda step: step.order):
        fact = evidence.unique_jobs.get(step.job)
        if fact is None:
            continue
        counts = (step.after == "queued" and step.token == 0) or (
            fact.while_ == "unfinished" and step.after in ("queued", "running")
        )
        counting = counting | {step.job} if counts else counting - {step.job}
        if counts and len(counting) > 1:
            yield f"jobs {', '.join(sorted(counting))} count for one unique key"


def the_last_payload_runs(evidence: Evidence) -> Iterator[str]:
    """Every claim of a unique job got the payload that its last producer stored."""
    for job, by in evidence.claimed_payloads:
        if job in evidence.unique_jobs and by != evidence.stored_payloads.get(job):
            yield f"job {job}: ran the payload of {by}, not of {evidence.stored_payloads.get(job)}"
    for job, fact in evidence.unique_jobs.items():
        if fact.payload_by != evidence.stored_payloads.get(job):
            yield f"job {job}: has the payload of {fact.payload_by}, whose enqueue was not the last"


def no_deadlock(evidence: Evidence) -> Iterator[str]:
    if evidence.record.is_deadlocked:
        yield "actors waited for each other, and PostgreSQL cancelled one of them"


def no_unexpected_error(evidence: Evidence) -> Iterator[str]:
    for name, error in evidence.record.errors:
        yield f"{name}: {type(error).__name__}: {' '.join(str(error).split())}"


def _tokens_given(history: History) -> dict[str, dict[str, set[int]]]:
    """The tokens that each worker was given, by job and worker."""
    given: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for claim in history.operations(Verb.CLAIM):
        if claim.outcome is Phase.OK and claim.job is not None and claim.token is not None:
            given[claim.job][claim.process].add(claim.token)
    return given


def _has_expired(before: Transition, step: Transition) -> bool:
    """Whether the lease had expired by the database's clock.

    It never expires by chance: it lasts for minutes unless the clock actor ends it.
    """
    return before.lease_expires_at is not None and before.lease_expires_at <= step.at
