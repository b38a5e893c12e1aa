"""Which peers run which workload in every repeat, once, or only with --all. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from benchmarks.peer import FAULTLINE, NAIVE, RAW_SQL

_EVERYTHING: Mapping[str, Collection[str]] = {}
_NODE = ("graphile_worker", "pg_boss")
_PER_JOB = ("graphile_worker", "pgqueuer", "oban", "saq", "absurd")


@dataclass(frozen=True)
class Selection:
    """The number of repeats of each peer with each workload."""

    every_repeat: Mapping[str, Collection[str]] = field(default_factory=lambda: _EVERYTHING)
    once: Collection[str] = ()  # workloads that all other peers run too, in the first repeat

    def repeats_of(self, peer: str, workload: str, repeats: int) -> int:
        if self.every_repeat is _EVERYTHING or peer in self.every_repeat.get(workload, ()):
            return repeats
        return 1 if workload in self.once else 0

    @property
    def workloads(self) -> set[str]:
        return {*self.every_repeat, *self.once}


EVERYTHING = Selection()
# The rows with a goal: Faultline and each peer that was among the fastest there. Other peers run once.
DEFAULT = Selection(
    every_repeat={
        "bulk_enqueue": (FAULTLINE, *_NODE, "pgqueuer"),
        "single_enqueue": (FAULTLINE, *_PER_JOB),
        "drain": (FAULTLINE, NAIVE, RAW_SQL, *_NODE, "pgqueuer"),
        "drain_batch": (FAULTLINE, *_NODE),
        "write": (FAULTLINE, NAIVE, RAW_SQL),
        "write_each": (FAULTLINE, *_PER_JOB),
        "write_message": (FAULTLINE,),
        "write_batch": (FAULTLINE, *_NODE),
        "latency": (FAULTLINE, "graphile_worker", "pgqueuer", "oban"),
    },
    once=(
        *("bulk_enqueue", "single_enqueue", "drain", "drain_batch"),
        *("write_each", "write_batch", "latency"),
    ),
)
SHORT = Selection(
    every_repeat={
        "bulk_enqueue": (FAULTLINE, *_NODE, "pgqueuer"),
        "single_enqueue": (FAULTLINE, "graphile_worker", "pgqueuer"),
        "drain": (FAULTLINE, NAIVE, RAW_SQL, *_NODE, "pgqueuer"),
        "drain_batch": (FAULTLINE, *_NODE),
        "write_each": (FAULTLINE, "graphile_worker", "pgqueuer"),
        "write_message": (FAULTLINE,),
        "write_batch": (FAULTLINE, *_NODE),
        "latency": (FAULTLINE, "graphile_worker", "pgqueuer"),
    }
)
SHORT_PEERS = (FAULTLINE, NAIVE, RAW_SQL, *_NODE, "pgqueuer")
