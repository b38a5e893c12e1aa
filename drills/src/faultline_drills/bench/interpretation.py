"""Explains the results: the cost of a commit, and what limits the workers. Pure."""

from __future__ import annotations

from faultline_drills.bench.measurements import MeasuredRate, Times

# If at least this share of the slots is in a commit on average, commits limit the workers. It is never
# all of them, because a job has other round trips too.
_COMMIT_BOUND_SHARE = 0.4


def interpret(
    round_trip: Times,
    commit: Times,
    unflushed: Times,
    drain: MeasuredRate,
    writes: MeasuredRate,
    *,
    slots: int,
) -> list[str]:
    """Sentences for the report; `slots` is how many jobs the workers run at once."""
    disk = max(0.0, commit.p50 - unflushed.p50)
    sentences = [
        f"One commit takes {_ms(commit.p50)}: {_ms(round_trip.p50)} for the round trip and"
        f" {_ms(disk)} until it is on disk. A client that waits for each commit reaches at most"
        f" {1 / commit.p50:,.0f} commits per second."
    ]
    in_commit = writes.median * commit.p50 / slots
    if in_commit < _COMMIT_BOUND_SHARE:
        sentences.append(
            f"CPU-bound: at {writes.median:,.0f} jobs with a write per second, {in_commit:.0%} of the slots"
            " wait for a commit. The rest is mostly computation by PostgreSQL and the workers: more or"
            " faster cores help, and more worker processes if there are cores for them."
        )
    elif disk >= round_trip.p50:
        sentences.append(
            f"Commit-bound: {in_commit:.0%} of the slots with a write wait for a commit, mostly for the"
            " disk. Faster storage helps, or more --concurrency: commits that wait together share one"
            " write to the disk."
        )
    else:
        sentences.append(
            f"Round-trip-bound: {in_commit:.0%} of the slots with a write wait for a commit, mostly for"
            " the network. Workers closer to the server help, or more --concurrency."
        )
    per_commit = drain.median * commit.p50
    sentences.append(
        f"No-op jobs are committed in batches: {per_commit:,.1f} of them complete in the time of one commit."
    )
    return sentences


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
