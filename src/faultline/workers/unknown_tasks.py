"""Task names that a worker cannot run, and how long their jobs are deferred."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from faultline.suggestions import did_you_mean

FIRST_DELAY_SECONDS = 60.0
LONGEST_DELAY_SECONDS = 3_600.0
MISSING_SECONDS = 60.0  # how long a task that a child process did not find counts as unknown
REPORT_AGAIN_SECONDS = 60.0
_MAX_NAMES = 1_000  # above this number all names are forgotten, which costs an extra claim


@dataclass(slots=True)
class _Sighting:
    first_seen_at: float
    reported_at: float | None = None
    jobs: int = 0  # deferred since the last event


class UnknownTasks:
    """Remembers a limited number of names. All times are of the steady clock."""

    def __init__(self) -> None:
        self._seen: dict[str, _Sighting] = {}
        self._missing: dict[str, float] = {}  # until when
        self._names: tuple[int, str] = (-1, "{}")

    def missing(self, task: str, now: float) -> None:
        """Record a task that a child process, with the code now on disk, does not have."""
        self._missing[task] = now + MISSING_SECONDS
        self._names = (-1, "{}")

    def runnable(self, tasks: Iterable[str], now: float) -> str:
        """The tasks that can run now, as an array literal for `protocol.claim`."""
        names = list(tasks)
        if self._missing:
            self._missing = {task: until for task, until in self._missing.items() if until > now}
            return _array(name for name in names if name not in self._missing)
        if self._names[0] != len(names):  # tasks are added at start, never removed
            self._names = (len(names), _array(names))
        return self._names[1]

    def delay_seconds(self, task: str, now: float) -> float:
        """How long to defer: twice the time that the task has been unknown, within limits."""
        if task not in self._seen and len(self._seen) >= _MAX_NAMES:
            self._seen.clear()
        sighting = self._seen.setdefault(task, _Sighting(now))
        unknown_for = now - sighting.first_seen_at
        return min(max(FIRST_DELAY_SECONDS, 2 * unknown_for), LONGEST_DELAY_SECONDS)

    def jobs_to_report(self, task: str, jobs: int, now: float) -> int:
        """How many deferred jobs the next event reports; 0 while the last event is recent."""
        sighting = self._seen.setdefault(task, _Sighting(now))
        sighting.jobs += jobs
        if sighting.reported_at is not None and now < sighting.reported_at + REPORT_AGAIN_SECONDS:
            return 0
        sighting.reported_at = now
        to_report, sighting.jobs = sighting.jobs, 0
        return to_report


def why_deferred(task: str, known: Iterable[str]) -> str:
    """A sentence for the log, with the closest known task."""
    question = did_you_mean(task, known)
    found = f"this app has no task {task}, so another worker must run its jobs"
    return f"{found}; {question}" if question else found


def _array(names: Iterable[str]) -> str:
    """An array literal. Task names need no quotes: see `payload.check_task_name`."""
    return "{" + ",".join(names) + "}"
