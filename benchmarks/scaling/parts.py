"""The five parts, each in its full or short size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.scaling import claims, drain, idle, maintenance, memory
from benchmarks.scaling.findings import Findings
from benchmarks.scaling.population import Population, Templates
from benchmarks.scaling.process import NotMeasured, has_proc
from faultline.embedded import temporary_server

PARTS = ("claims", "pinned", "idle", "memory", "maintenance")
_IDLE_CONNECTIONS = "600"  # enough for a hundred workers


@dataclass(frozen=True)
class MeasurementOptions:
    """The server, size and seed of the measurements."""

    url: str  # of an account that may create databases and disable triggers
    is_own_server: bool  # embedded: a part may start another one with more connections
    short: bool
    seed: int
    progress: Callable[[str], None]


def measure(options: MeasurementOptions, parts: Sequence[str] = PARTS) -> Findings:
    """Measure the parts; `missing` has the reason for each that failed."""
    findings = Findings()
    with ExitStack() as stack:
        templates = Templates(options.url, stack)
        for part in parts:
            try:
                _MEASURES[part](options, templates, findings)
            except NotMeasured as error:
                findings.missing[part] = str(error)
    return findings


def _measure_claims(options: MeasurementOptions, templates: Templates, findings: Findings) -> None:
    findings.costs = claims.measure(
        templates,
        claims.cases(short=options.short),
        rounds=4 if options.short else 10,
        seed=options.seed,
        progress=options.progress,
    )


def _measure_pinned(options: MeasurementOptions, templates: Templates, findings: Findings) -> None:
    cursor = drain.has_claim_cursor(templates.database(Population(waiting=0)))
    shapes, missing = drain.shapes(short=options.short, cursor=cursor), findings.missing
    findings.drains = drain.measure(
        templates, shapes, seed=options.seed, progress=options.progress, missing=missing
    )
    findings.shapes = [shape for shape in shapes if shape.name not in missing]


def _measure_idle(options: MeasurementOptions, templates: Templates, findings: Findings) -> None:
    _require_proc()
    sizes, seconds = ((5,), 2.0) if options.short else ((0, 1, 20, 100), 20.0)
    with _with_many_connections(options, templates) as templates:
        findings.loads = idle.measure(templates, sizes, seconds=seconds, progress=options.progress)


def _measure_memory(options: MeasurementOptions, templates: Templates, findings: Findings) -> None:
    _require_proc()
    findings.footprints = memory.measure(
        templates,
        waiting=50_000 if options.short else 1_000_000,
        seconds=1.0 if options.short else 10.0,
        repeats=1 if options.short else 3,
        progress=options.progress,
    )


def _measure_maintenance(
    options: MeasurementOptions, templates: Templates, findings: Findings
) -> None:
    findings.maintenance_times = maintenance.measure(
        templates, short=options.short, progress=options.progress
    )


_MEASURES = {
    "claims": _measure_claims,
    "pinned": _measure_pinned,
    "idle": _measure_idle,
    "memory": _measure_memory,
    "maintenance": _measure_maintenance,
}


@contextmanager
def _with_many_connections(
    options: MeasurementOptions, templates: Templates
) -> Iterator[Templates]:
    """Yield templates on a server with more connections, unless a server was given."""
    if options.short or not options.is_own_server:
        yield templates
        return
    settings = {"max_connections": _IDLE_CONNECTIONS}
    with temporary_server(settings=settings) as server, ExitStack() as stack:
        yield Templates(server.url, stack)


def _require_proc() -> None:
    if not has_proc():
        raise NotMeasured("memory and processor time are read from /proc, which only Linux has")
