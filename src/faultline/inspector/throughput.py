"""How many jobs took effect each second, told from a counter that PostgreSQL keeps anyway.

The ledger has no index on time, and is never read to be counted. PostgreSQL counts the rows that were
ever inserted into each table; the difference between two looks is how many were entered meanwhile.
Sessions report their counts about once a second, idle ones later, and entries that were rolled back
count too: it is a rate for people to look at, not an account.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from faultline.statements.statement import Statement

WINDOW_SECONDS = 10.0
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    at_seconds: float  # of the database's clock
    entries: int


def sample() -> Statement[Sample]:
    return Statement(
        "SELECT extract(epoch FROM clock_timestamp())::float8,"
        " pg_stat_get_tuples_inserted('faultline.ledger'::regclass)",
        (),
        lambda rows: Sample(*rows[0]),
    )


@dataclass(frozen=True, slots=True)
class Throughput:
    succeeded_per_second: float | None  # None: there is nothing yet to compare with
    window_seconds: float


class Samples:
    """The looks of the last seconds. The rate is over WINDOW_SECONDS, or over the time since the look
    before if that is longer; a look of more than LONGEST_SECONDS ago tells nothing any more."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, newest: Sample) -> Throughput:
        last = self._samples[-1] if self._samples else None
        if last and (newest.entries < last.entries or newest.at_seconds <= last.at_seconds):
            self._samples.clear()  # counters were reset, or the clock was
        self._samples.append(newest)
        while len(self._samples) > 1 and not self._is_of_use(self._samples[0], newest):
            self._samples.popleft()
        oldest = self._samples[0]
        seconds = newest.at_seconds - oldest.at_seconds
        if not seconds:
            return Throughput(None, 0.0)
        return Throughput((newest.entries - oldest.entries) / seconds, seconds)

    def _is_of_use(self, oldest: Sample, newest: Sample) -> bool:
        age = newest.at_seconds - oldest.at_seconds
        only_one_to_compare_with = len(self._samples) == 2
        return age <= (LONGEST_SECONDS if only_one_to_compare_with else WINDOW_SECONDS)
