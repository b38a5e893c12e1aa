"""Figures from a drill: recovery times, losses, and confidence intervals. No I/O."""

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
    """Per attempt of a lost worker: seconds from its loss to the job's next claim."""
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


def losses(history: History, lost_states: Iterable[LostState]) -> dict[str, int]:
    """Counts of acknowledged operations that were lost with a server."""
    lost = list(lost_states)
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
    """The longest time in seconds between two consecutive acknowledged commits."""
    ends = [
        each.ended
        for each in history.operations(Verb.ATTEMPT)
        if each.outcome is Phase.OK and each.ended is not None
    ]
    return max((later - earlier for earlier, later in pairwise(sorted(ends))), default=0.0)


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by nearest rank: always a measured value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a rate, which is meaningful for 0 hits too."""
    if n == 0:
        return 0.0, 1.0
    rate, z2 = hits / n, _Z_95**2
    center = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, center - half), min(1.0, center + half)
