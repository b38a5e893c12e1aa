"""Figures from a drill: how long a job that lost its worker waited, and how sure a rate is. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from faultline_drills.recording.database_state import LostState
from faultline_drills.recording.history import History, Phase, Verb

_Z_95 = 1.959964  # two-sided 95 %


def recoveries(history: History) -> list[float]:
    """For every attempt whose worker was lost: seconds from then to the job's next claim."""
    claims: dict[str | None, list[float]] = defaultdict(list)
    for claim in history.operations(Verb.CLAIM):
        if claim.outcome is Phase.OK:
            claims[claim.job].append(claim.began)
    waits = []
    for attempt in history.operations(Verb.ATTEMPT):
        if attempt.outcome is not Phase.INFO or attempt.ended is None:
            continue
        later = claims[attempt.job]
        position = bisect_right(later, attempt.ended)
        if position < len(later):
            waits.append(later[position] - attempt.ended)
    return waits


def losses(history: History, abandoned: Iterable[LostState]) -> dict[str, int]:
    """What somebody was told is done, and was lost with a server, since no other had it."""
    lost = list(abandoned)
    submits = {each.job for each in history.operations(Verb.SUBMIT) if each.outcome is Phase.OK}
    commits = {
        (each.job, each.token)
        for each in history.operations(Verb.ATTEMPT)
        if each.outcome is Phase.OK
    }
    return {
        "lost_submits": sum(len(submits & server.jobs) for server in lost),
        "lost_commits": sum(len(commits & server.commits) for server in lost),
        "lost_claims": sum(len(server.claims) for server in lost),
    }


def longest_silence(history: History) -> float:
    """The longest time, in seconds, from one commit that somebody was told of to the next."""
    told = [
        each.ended
        for each in history.operations(Verb.ATTEMPT)
        if each.outcome is Phase.OK and each.ended is not None
    ]
    return max((later - earlier for earlier, later in pairwise(sorted(told))), default=0.0)


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest rank: a value that was measured, never one in between."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """Where the true rate lies with 95 % confidence; also meaningful for 0 hits, unlike the usual one."""
    if n == 0:
        return 0.0, 1.0
    rate, z2 = hits / n, _Z_95**2
    center = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, center - half), min(1.0, center + half)
