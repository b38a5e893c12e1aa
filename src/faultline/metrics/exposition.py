"""Renders the metrics of one process, or of a supervisor's processes, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from faultline.metrics.catalogue import CATALOGUE, Across, Kind, Metric, Part, of_parts

LEADING = "faultline_reconciler_leading"
_PROCESS = "pid"  # prometheus_client's label for the process of a gauge


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
