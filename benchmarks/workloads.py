"""The workloads of the comparison, and how they are timed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from benchmarks.completion import wait_until_finished
from benchmarks.peer import FAULTLINE, Peer
from benchmarks.processes import PeerFailed
from benchmarks.trial import Trial
from benchmarks.turn_limits import SETUP_SECONDS, TurnLimits
from faultline_drills.judging.measures import quantile

BULK = 1000
LATENCY_JOBS = 200
_WARM_UP_JOBS = 5
_BETWEEN_JOBS_SECONDS = 0.02
_LATENCY_TAKES = 1.5
_MIN_JOBS = 10


@dataclass(frozen=True)
class Measure:
    """A measured quantity, one column of the report."""

    name: str
    title: str
    unit: str
    higher_is_better: bool = True
    compared_with: str | None = None  # the measure of peers that have none of this one


@dataclass(frozen=True)
class WorkloadResult:
    values: Mapping[str, float]  # by name of the measure
    jobs: int
    seconds: float
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    name: str
    about: str
    measures: tuple[Measure, ...]
    run: Callable[[Trial], WorkloadResult]
    size: str | int  # a key of the peer's [jobs], or one number for all peers
    share: float = 1.0  # of that number
    in_batches: bool = False  # only for peers that have batches
    only: str | None = None  # the one peer that runs it
    together_with: str | None = None  # the workload before it: the peers of both take turns
    fills: bool = True  # jobs are enqueued before the measurement
    longer: float = 1.0  # its measurement may take so many times as long

    def jobs_of(self, peer: Peer, scale: float) -> int:
        """Return the number of jobs; a peer may set its own for this workload."""
        own = peer.jobs.get(self.name)
        whole = self.size if isinstance(self.size, int) else peer.jobs[self.size] * self.share
        return max(_MIN_JOBS, round((own or whole) * scale))

    def budget_seconds(self, limits: TurnLimits) -> float:
        """Return how long a turn lasts whose parts are stopped at their limits."""
        fill = limits.fill_seconds if self.fills else 0.0
        return SETUP_SECONDS + fill + limits.measured_seconds * self.longer


def _enqueue(trial: Trial, *, batch: int, measure: str) -> WorkloadResult:
    trial.vacuum_and_checkpoint()
    limit = trial.limits.measured_seconds
    printed = trial.enqueue("noop", trial.jobs, batch=batch, seconds=limit)
    jobs, seconds = int(printed["jobs"]), float(printed["seconds"])
    return WorkloadResult({measure: jobs / seconds}, jobs, seconds)


def _drain(
    trial: Trial, *, measure: str, task: str = "noop", payload: int = 0, workers: int = 1
) -> WorkloadResult:
    """Measure from the first start until all jobs are finished, or the limit."""
    filled = trial.enqueue(
        task, trial.jobs, batch=BULK, payload=payload, seconds=trial.limits.fill_seconds
    )
    jobs = int(filled["jobs"])
    trial.vacuum_and_checkpoint()
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(trial.start_worker()) for _ in range(workers)]

        def starts() -> list[int]:
            return [
                line["first_ns"] for one in processes for line in one.heard if "first_ns" in line
            ]

        def check() -> None:
            for one in processes:
                one.require_alive()

        processes[0].wait_for(lambda heard: bool(starts()), trial.deadline)
        finished = wait_until_finished(
            trial.count_finished,
            jobs,
            began_ns=min(starts()),
            deadline=trial.deadline,
            check=check,
            limit_seconds=trial.limits.measured_seconds,
        )
        seconds = (finished.at_ns - min(starts())) / 1e9
    details: dict[str, object] = {"enqueued": jobs}
    if task == "write":
        details["effects"] = effects = trial.count_effects()
        if effects is not None and effects < finished.jobs:
            raise PeerFailed(f"{finished.jobs} jobs were finished, but only {effects} took effect")
    rate = finished.jobs / seconds
    return WorkloadResult({measure: rate}, finished.jobs, seconds, details)


def _latency(trial: Trial) -> WorkloadResult:
    """Measure from just before the enqueue to the handler's first line, by one clock."""
    trial.vacuum_and_checkpoint()
    with trial.start_worker() as worker:

        def stamps() -> list[float]:
            return [
                (line["seen_ns"] - line["sent_ns"]) / 1e6
                for line in worker.heard
                if "sent_ns" in line
            ]

        trial.enqueue("stamp", _WARM_UP_JOBS, every=_BETWEEN_JOBS_SECONDS)
        worker.wait_for(lambda heard: len(stamps()) >= _WARM_UP_JOBS, trial.deadline)
        limit = trial.limits.measured_seconds * _LATENCY_TAKES
        printed = trial.enqueue("stamp", trial.jobs, every=_BETWEEN_JOBS_SECONDS, seconds=limit)
        expected = _WARM_UP_JOBS + int(printed["jobs"])
        worker.wait_for(lambda heard: len(stamps()) >= expected, trial.deadline)
        waits = stamps()[_WARM_UP_JOBS:]
    values = {"latency_p50": quantile(waits, 0.5), "latency_p99": quantile(waits, 0.99)}
    details = {"milliseconds": [round(wait, 3) for wait in waits]}
    return WorkloadResult(values, len(waits), sum(waits) / 1e3, details)


def _rate(name: str, title: str, compared_with: str | None = None) -> tuple[Measure]:
    return (Measure(name, title, "jobs/s", compared_with=compared_with),)


_LIST = (
    Workload(
        "bulk_enqueue",
        "enqueue no-op jobs 1,000 at a time, with the peer's fastest bulk method",
        _rate("bulk_enqueue", "bulk enqueue"),
        partial(_enqueue, batch=BULK, measure="bulk_enqueue"),
        "enqueue",
        fills=False,
    ),
    Workload(
        "single_enqueue",
        "enqueue no-op jobs one at a time, a transaction each",
        _rate("single_enqueue", "single enqueue"),
        partial(_enqueue, batch=1, measure="single_enqueue"),
        "single",
        fills=False,
    ),
    Workload(
        "drain",
        "one worker process drains no-op jobs, until all are finished in the database",
        _rate("drain", "drain, no-op"),
        partial(_drain, measure="drain"),
        "drain",
    ),
    Workload(
        "drain_1kb",
        "the same with 1 KB of payload",
        _rate("drain_1kb", "drain, 1 KB"),
        partial(_drain, measure="drain_1kb", payload=1_000),
        "drain",
        share=0.5,
    ),
    Workload(
        "drain_10kb",
        "the same with 10 KB of payload",
        _rate("drain_10kb", "drain, 10 KB"),
        partial(_drain, measure="drain_10kb", payload=10_000),
        "drain",
        share=0.2,
    ),
    Workload(
        "write",
        "jobs that insert one row each, in the transaction that finishes the job if the peer supports that",
        _rate("write", "one write per job"),
        partial(_drain, measure="write", task="write"),
        "write",
    ),
    Workload(
        "write_each",
        "the same, but each job is finished on its own before its slot takes another: a crash can repeat one"
        " job of a slot, not a batch",
        _rate("write_each", "one write per job, finished one by one"),
        partial(_drain, measure="write_each", task="write"),
        "write",
    ),
    Workload(
        "write_message",
        "the same by `job.commit_with`, everything in one message: Faultline alone, compared with"
        " write_each of the peers",
        _rate("write_message", "the same, in one message", compared_with="write_each"),
        partial(_drain, measure="write_message", task="write"),
        "write",
        only=FAULTLINE,
        together_with="write_each",
    ),
    Workload(
        "drain_batch",
        "drain no-op jobs in batches: with a batch handler, or as the peer finishes jobs together",
        _rate("drain_batch", "drain, no-op, in batches"),
        partial(_drain, measure="drain_batch"),
        "drain",
        in_batches=True,
    ),
    Workload(
        "write_batch",
        "jobs that insert one row each, in batches, in the transaction that finishes them if the peer"
        " supports that",
        _rate("write_batch", "one write per job, in batches"),
        partial(_drain, measure="write_batch", task="write"),
        "drain",
        share=0.3,
        in_batches=True,
    ),
    Workload(
        "latency",
        "from enqueue, in another process, to the start of the handler on an idle worker",
        (
            Measure("latency_p50", "start latency p50", "ms", higher_is_better=False),
            Measure("latency_p99", "start latency p99", "ms", higher_is_better=False),
        ),
        _latency,
        LATENCY_JOBS,
        fills=False,
        longer=_LATENCY_TAKES,
    ),
    Workload(
        "retries",
        "drain jobs of which one in ten fails at its first attempt",
        _rate("retries", "drain with retries"),
        partial(_drain, measure="retries", task="flaky"),
        "drain",
        share=0.3,
    ),
    Workload(
        "two_workers",
        "two worker processes drain no-op jobs",
        _rate("two_workers", "drain, 2 processes"),
        partial(_drain, measure="two_workers", workers=2),
        "drain",
    ),
)
WORKLOADS = {workload.name: workload for workload in _LIST}
MEASURES = {measure.name: measure for workload in _LIST for measure in workload.measures}
