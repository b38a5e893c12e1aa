"""The catalogue as prometheus_client objects: their values, and the page of them.

The application's own use of prometheus_client is not affected: neither its default registry, nor where its
metrics keep their values, which the library sets for the whole process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.core import Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from faultline.metrics.catalogue import (
    CATALOGUE,
    MAX_NAMES,
    OTHER,
    Across,
    Kind,
    Metric,
    Part,
    of_parts,
)

_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
# The gauges of several processes stay separate; `Exposed` merges them.
_PER_PROCESS: Literal["liveall"] = "liveall"
FILE_OF_GAUGES = f"gauge_{_PER_PROCESS}"
LEADING = "faultline_reconciler_leading"
_PROCESS = "pid"  # prometheus_client's label for the process of a gauge


class BatchHistogram(Histogram):
    def observe_many(self, amounts: list[float]) -> None:
        """Observe many values for less than a tenth of the cost. Sorts `amounts` in place."""
        amounts.sort()
        self._sum.inc(sum(amounts))
        counted = 0
        for bucket, bound in zip(self._buckets, self._upper_bounds, strict=True):
            up_to = bisect_right(amounts, bound)
            if up_to > counted:
                bucket.inc(up_to - counted)
                counted = up_to


class BoundedNames:
    """Bounds the number of label values: names beyond the limit become OTHER."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._known: set[str] = set()
        self._adding = threading.Lock()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        with self._adding:
            if len(self._known) < self._limit:
                self._known.add(name)
                return name
        return OTHER


class Series:
    """Finds or makes the series for given label values.

    Callers bound the label values.
    """

    def __init__(self, files: Path | None = None) -> None:
        """`files` is a directory and, as its last part, this process's name there."""
        self.registry = CollectorRegistry(auto_describe=False)
        self._directory = None if files is None else files.parent
        self._values = _values_in(files)
        self._making = threading.Lock()
        with self._own_values():
            self._metrics = {metric.name: self._make(metric) for metric in CATALOGUE}
        self._children: dict[tuple[str, ...], Any] = {}
        for metric in CATALOGUE:
            # A leader exports only what it has counted.
            is_known = all(label in metric.values for label in metric.labels)
            if metric.labels and is_known and metric.across is not Across.LEADER:
                self._begin(metric, [metric.values[label] for label in metric.labels])

    def expect(self, queues: Collection[str]) -> None:
        """Start the worker's series of these queues at 0."""
        for metric in CATALOGUE:
            if "queue" in metric.labels and Part.WORKER in metric.parts:
                self._begin(metric, [metric.values.get(label, queues) for label in metric.labels])

    def _begin(self, metric: Metric, values_by_label: Sequence[Collection[str]]) -> None:
        for labels in itertools.product(*values_by_label):
            self._find(metric.name, labels)

    def counter(self, name: str, *labels: str) -> Counter:
        return cast(Counter, self._find(name, labels))

    def gauge(self, name: str, *labels: str) -> Gauge:
        return cast(Gauge, self._find(name, labels))

    def histogram(self, name: str, *labels: str) -> BatchHistogram:
        return cast(BatchHistogram, self._find(name, labels))

    def _find(self, name: str, labels: tuple[str, ...]) -> Any:
        key = (name, *labels)
        found = self._children.get(key)
        if found is None:
            metric = self._metrics[name]
            with self._own_values():
                found = self._children[key] = metric.labels(*labels) if labels else metric
        return found

    def _make(self, metric: Metric) -> Any:
        given: dict[str, Any] = {
            "name": metric.name,
            "documentation": metric.help,
            "labelnames": metric.labels,
            "registry": self.registry,
        }
        match metric.kind:
            case Kind.COUNTER:
                return Counter(**given)
            case Kind.GAUGE:
                return Gauge(**given, multiprocess_mode=_PER_PROCESS)
            case Kind.HISTOGRAM:
                return BatchHistogram(**given, buckets=metric.buckets)

    @contextlib.contextmanager
    def _own_values(self) -> Iterator[None]:
        """Inside, prometheus_client uses our own value class and directory."""
        library: Any = values
        with self._making:
            before, library.ValueClass = library.ValueClass, self._values
            directory = os.environ.get(_DIRECTORY)
            if self._directory is not None:
                os.environ[_DIRECTORY] = str(self._directory)
            try:
                yield
            finally:
                library.ValueClass = before
                if self._directory is not None:
                    del os.environ[_DIRECTORY]
                    if directory is not None:
                        os.environ[_DIRECTORY] = directory


def _values_in(files: Path | None) -> Any:
    library: Any = values
    if files is None:
        return library.MutexValue
    name = files.name
    return library.MultiProcessValue(process_identifier=lambda: name)


# Room for a process with MAX_NAMES names. Growing a file on a full disk would kill the process that writes
# to it, so the space is allocated in advance.
_SIZES = {"counter": 2**19, "histogram": 2**21, FILE_OF_GAUGES: 2**18}


_EMPTY = bytes(8)  # the header of a file without values


class ProcessFiles:
    """Metrics of several worker processes, in files that their supervisor reads.

    Each process has a slot. A process that replaces a dead one continues its counters, so that totals
    never decrease and the number of files stays the same. The supervisor removes the temporary directory
    when it ends.
    """

    def __init__(self, count: int) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="faultline-metrics-"))
        try:
            for slot in range(count):
                for kind in _SIZES:
                    self._make(kind, slot)
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> ProcessFiles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def files_of(self, slot: int) -> Path:
        """The argument `files` of `switch_on` in the process of this slot."""
        return self._directory / str(slot)

    def free(self, slot: int) -> None:
        """Clear the gauges of a process that has ended."""
        with (
            contextlib.suppress(OSError),  # outdated gauges must not stop the supervisor
            (self._directory / f"{FILE_OF_GAUGES}_{slot}.db").open("r+b") as file,
        ):
            file.write(_EMPTY)

    def _make(self, kind: str, slot: int) -> None:
        with (self._directory / f"{kind}_{slot}.db").open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, _SIZES[kind])
            else:
                file.truncate(_SIZES[kind])

    def registry(self, *parts: Part) -> CollectorRegistry:
        collector = MultiProcessCollector(None, str(self._directory))  # type: ignore[no-untyped-call]
        return registry_of(collector.collect, frozenset(parts))


class Shown(NamedTuple):
    """One value of a gauge and its process."""

    process: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Exposed(Collector):
    """The catalogue's metrics of these parts, among those that `collect` returns.

    Merges the gauges of several processes. Leaves out leader metrics where no process leads: a former leader
    would go on exporting its last values.
    """

    def __init__(self, collect: Callable[[], Iterable[Family]], parts: frozenset[Part]) -> None:
        self._collect = collect
        names = of_parts(parts)
        self._metrics = [metric for metric in CATALOGUE if metric.name in names]

    def describe(self) -> Iterator[Family]:
        for metric in self._metrics:
            yield _family(metric)

    def collect(self) -> Iterator[Family]:
        found = {family.name: family.samples for family in self._collect()}
        leaders = {shown.process for shown in _shown(found.get(LEADING, ())) if shown.value == 1}
        for metric in self._metrics:
            family = _family(metric)
            samples = found.get(family.name, ())
            if metric.kind is Kind.GAUGE:
                samples = _merged(metric, samples, leaders)
            family.samples = [each for each in samples if not each.name.endswith("_created")]
            yield family


def registry_of(
    collect: Callable[[], Iterable[Family]], parts: frozenset[Part]
) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Exposed(collect, parts))
    return registry


def expose(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


def _family(metric: Metric) -> Family:
    name = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
    return Family(name, metric.help, metric.kind.value)


def _shown(samples: Iterable[Sample]) -> Iterator[Shown]:
    for sample in samples:
        labels = {**sample.labels}
        process = labels.pop(_PROCESS, "")
        yield Shown(process, tuple(labels.items()), sample.value)


def _merged(metric: Metric, samples: Iterable[Sample], leaders: set[str]) -> list[Sample]:
    merged: dict[tuple[tuple[str, str], ...], float] = {}
    for process, labels, value in _shown(samples):
        if metric.across is Across.SUM:
            merged[labels] = merged.get(labels, 0.0) + value
        elif metric.across is Across.MAX or process in leaders:
            merged[labels] = max(merged.get(labels, value), value)
    return [Sample(metric.name, dict(labels), value) for labels, value in merged.items()]
