"""What the figures mean: what this server makes everything else wait for. Pure."""

from __future__ import annotations

from faultline.bench.figures import Rate, Times

_MOST_OF_IT = 0.5


def read(
    round_trip: Times, commit: Times, unflushed: Times, drain: Rate, writes: Rate
) -> list[str]:
    """Sentences, the most important first."""
    flush = max(0.0, commit.p50 - unflushed.p50)
    one, trip, disk = _ms(commit.p50), _ms(round_trip.p50), _ms(flush)
    if flush > _MOST_OF_IT * commit.p50:
        sentences = [
            f"Commit-bound: of the {one} that one commit takes, {disk} is the wait for the disk (or a"
            f" standby), so one session commits at most {1 / commit.p50:,.0f} times a second. Batches"
            " share a commit, and concurrent jobs overlap theirs; faster storage helps most."
        ]
    elif round_trip.p50 > _MOST_OF_IT * commit.p50:
        sentences = [
            f"Round-trip-bound: of the {one} that one commit takes, {trip} is the way to the server and"
            f" back, and {disk} the wait for the disk. Batches and concurrency help, and so does"
            " running workers closer to the server."
        ]
    else:
        sentences = [
            f"CPU-bound: one commit takes {one}, of which {trip} is the way to the server and back and"
            f" {disk} the wait for the disk. The rest is computing, by PostgreSQL and by the worker:"
            " faster or more cores help, then more worker processes."
        ]
    sentences.append(
        f"A no-op job took {_ms(1 / drain.median)}, {_share(1 / drain.median, commit.p50)} of one such"
        f" commit, as batches share it; a job with a write of its own took"
        f" {_ms(1 / writes.median)}, {_share(1 / writes.median, commit.p50)}."
    )
    return sentences


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _share(seconds: float, commit_seconds: float) -> str:
    return f"{seconds / commit_seconds:.2g}×"
