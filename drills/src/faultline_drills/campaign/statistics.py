"""Counts the duplicates and recovery times of a campaign. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from faultline_drills.recording.database_state import DatabaseState, Transition
from faultline_drills.recording.history import History, Phase, Verb


def duplicated_jobs(state: DatabaseState) -> set[str]:
    """Jobs that took effect more than once.

    Either a part of the effect is there twice, or its parts are under two tokens.
    """
    parts: dict[str, Counter[int]] = defaultdict(Counter)
    tokens: dict[str, set[int]] = defaultdict(set)
    for effect in state.effects:
        if not effect.is_step:
            parts[effect.job][effect.part] += 1
            tokens[effect.job].add(effect.token)
    return {job for job, seen in parts.items() if max(seen.values()) > 1 or len(tokens[job]) > 1}


def crash_recoveries(history: History, jobs: Collection[str]) -> list[float]:
    """Seconds from a worker's death to the next claim of its job, for these jobs.

    Both times are those at which the drill noticed the event; if it noticed the claim first, the wait
    counts as 0.
    """
    claimed_at = {(claim.job, claim.token): claim.began for claim in history.operations(Verb.CLAIM)}
    waits = []
    for attempt in history.operations(Verb.ATTEMPT):
        is_lost = attempt.outcome is Phase.INFO and attempt.job in jobs
        if not is_lost or attempt.ended is None or attempt.token is None:
            continue
        following = claimed_at.get((attempt.job, attempt.token + 1))
        if following is not None:
            waits.append(max(0.0, following - attempt.ended))
    return waits


def takeovers_after_expiry(state: DatabaseState, jobs: Collection[str]) -> list[float]:
    """Seconds from a lease's expiry to the next claim, by the database's clock."""
    leases: dict[tuple[str, int], list[Transition]] = defaultdict(list)
    for step in sorted(state.transitions, key=lambda step: step.order):
        if step.job in jobs and step.after == "running":
            leases[step.job, step.token].append(step)
    waits = []
    for (job, token), held in leases.items():
        following, expired_at = leases.get((job, token + 1)), held[-1].lease_expires_at
        if following and expired_at is not None and following[0].at >= expired_at:
            waits.append(following[0].at - expired_at)
    return waits
