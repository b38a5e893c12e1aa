"""Settings of a soak: its length, its processes, and its faults."""

from __future__ import annotations

from dataclasses import dataclass

from faultline.errors import InvalidInput
from faultline_drills.nemesis import FAULTS
from faultline_drills.scenario import DrillSettings
from faultline_drills.subjects import Subject

_DRAIN_SECONDS = 120.0
_LIMITED_KEYS = 200


@dataclass(frozen=True, kw_only=True)
class SoakSettings:
    seconds: float = 60.0
    workers: int = 4
    producers: int = 2
    reconcilers: int = 1
    seed: int = 1
    subject: Subject = Subject.FAULTLINE
    lease_seconds: float = 1.0
    jobs_per_second: float = 20.0  # of all producers together
    # The history in memory grows with each job, so a long soak submits more slowly.
    most_jobs: int = 20_000
    limited_keys: int = _LIMITED_KEYS  # of jobs under a limit for each key; 0: no such jobs
    longest_pause_seconds: float = 1.5  # between two faults
    faults: tuple[str, ...] = ()  # kinds; all that are available if empty

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.workers < 1 or self.producers < 1 or self.reconcilers < 0:
            raise InvalidInput("a soak needs a duration above 0, a worker and a producer")
        if self.limited_keys < 0:
            raise InvalidInput("--limited-keys must be at least 0")
        if self.jobs_per_second <= 0 or self.most_jobs < 1:
            raise InvalidInput("a soak needs jobs: --jobs-per-second must be above 0")
        if unknown := sorted(set(self.faults) - set(FAULTS)):
            raise InvalidInput(
                f"there is no fault {unknown[0]!r}", hint=f"one of: {', '.join(FAULTS)}"
            )

    @property
    def command(self) -> str:
        """The command that repeats this soak, without options that have their default."""
        words = f"faultline drill soak --minutes {self.seconds / 60:g} --seed {self.seed}"
        words += f" --subject {self.subject}" if self.subject is not Subject.FAULTLINE else ""
        words += (
            f" --limited-keys {self.limited_keys}" if self.limited_keys != _LIMITED_KEYS else ""
        )
        return words + "".join(f" --fault {kind}" for kind in self.faults)

    @property
    def pace_per_second(self) -> float:
        return min(self.jobs_per_second, self.most_jobs / self.seconds)

    @property
    def drill(self) -> DrillSettings:
        return DrillSettings(
            seed=self.seed,
            jobs=1,
            workers=self.workers,
            lease_seconds=self.lease_seconds,
            timeout_seconds=_DRAIN_SECONDS,
            subject=self.subject,
        )
