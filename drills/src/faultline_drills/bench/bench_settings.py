"""The settings of a bench."""

from __future__ import annotations

import random
from dataclasses import dataclass

from faultline.config import MAX_CONCURRENCY, WorkerSettings
from faultline.errors import InvalidSettings

MAX_SECONDS = 3600.0
MAX_WORKERS = 64
MAX_PAYLOAD_BYTES = 100_000  # a thousand of them are enqueued in one statement


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    seconds: float = 60.0  # for the whole bench
    workers: int = 1
    concurrency: int = WorkerSettings().concurrency
    payload_bytes: int = 0
    seed: int = 1  # of the payload and of the pauses between lone jobs

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("seconds", self.seconds, 1, MAX_SECONDS),
            ("workers", self.workers, 1, MAX_WORKERS),
            ("concurrency", self.concurrency, 1, MAX_CONCURRENCY),
            ("payload_bytes", self.payload_bytes, 0, MAX_PAYLOAD_BYTES),
        ):
            if not low <= value <= high:
                raise InvalidSettings(f"{name} is {low:,g} to {high:,g}, not {value:,g}")

    @property
    def command(self) -> str:
        return (
            f"faultline bench --seconds {self.seconds:g} --workers {self.workers}"
            f" --concurrency {self.concurrency} --payload {self.payload_bytes} --seed {self.seed}"
        )

    @property
    def slots(self) -> int:
        """The number of jobs that run at once."""
        return self.workers * self.concurrency

    def arguments(self) -> dict[str, str]:
        """Each job's payload: random, because PostgreSQL would compress a repeated letter."""
        if not self.payload_bytes:
            return {}
        drawn = random.Random(self.seed).randbytes((self.payload_bytes + 1) // 2)  # noqa: S311
        return {"filler": drawn.hex()[: self.payload_bytes]}
