"""The report as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.measurement import Measurement, number
from benchmarks.peer import FAULTLINE
from benchmarks.results import Participant, Results
from benchmarks.workloads import MEASURES, WORKLOADS

_INTRODUCTION = (
    "Everything below was measured in one run, on one server. The peers took turns, in a new random order"
    " for every workload of every repeat. A figure is the median over repeats; ± is half of the range from"
    " the lowest to the highest value, as a share of the median. Ratios are Faultline to the other queue,"
    " computed within a repeat; they are the result, and absolute figures are context. The peers that were"
    " among the fastest at a workload are measured in every repeat, the others once (n = 1)."
)


def as_markdown(results: Results, plots: Sequence[str]) -> str:
    """Return the report; `plots` are the names of image files beside it."""
    parts = ["# Faultline compared with other queues", _origin(results), _INTRODUCTION]
    parts += ["## Goals", _to_reach(results)]
    parts += [f"![{name}]({name})" for name in plots]
    for title, measures in _groups(results):
        parts += [f"## {title}", _figures(results, measures)]
    parts += ["## Workloads", _workloads(results)]
    parts += ["## Settings", _settings(results)]
    if absences := list(_absences(results)):
        parts += ["## Not measured", "\n".join(f"- {line}" for line in absences)]
    for section in results.sections.values():
        parts += [f"## {section.title}", section.markdown.strip()]
        parts += [f"![{stem}]({stem}.png)" for stem in section.figures]
    return "\n\n".join(part for part in parts if part) + "\n"


def _origin(results: Results) -> str:
    origin = results.origin
    settings = results.settings
    lines = {
        "command": f"`{origin['command']}`",
        "commit": origin["commit"] or "unknown",
        "seed": origin["seed"],
        "machine": f"{origin['cores']} cores, {origin['machine']}",
        "versions": f"Faultline {origin['faultline']}, PostgreSQL {origin['postgres']},"
        f" Python {origin['python']}",
        "PostgreSQL": ", ".join(f"{key} {value}" for key, value in settings["postgres"].items()),
        "run": f"{settings['repeats']} repeats, {settings['scale']:g} of each peer's number of jobs,"
        f" {settings['took_seconds']} s in all",
        "date": origin["made_at"],
    }
    if results.turns_left:
        why = "interrupted" if results.is_interrupted else "the time was used up"
        lines[why] = f"{results.turns_left} measurements of the comparison are missing"
    return "\n".join(f"- {name}: {value}" for name, value in lines.items())


def _to_reach(results: Results) -> str:
    rows = []
    for verdict in results.verdicts:
        against = verdict.against
        if verdict.reached is not None and verdict.note:
            against += f" ({verdict.note})"
        rows.append(
            [
                *(verdict.what, against, verdict.compares or "–"),
                *(verdict.wanted, verdict.figure, verdict.outcome),
            ]
        )
    head = ["goal", "compared with", "what is compared", "required", "measured", ""]
    return table(head, rows)


def _groups(results: Results) -> Iterable[tuple[str, list[str]]]:
    for title, wanted in (
        ("Enqueue", ("bulk_enqueue", "single_enqueue")),
        ("Drain of no-op jobs", ("drain", "drain_1kb", "drain_10kb", "two_workers")),
        ("Jobs that write, jobs that fail", ("write", "write_each", "write_message", "retries")),
        ("In batches", ("drain_batch", "write_batch")),
        ("Start latency on an idle worker", ("latency_p50", "latency_p99")),
    ):
        if measures := [name for name in wanted if name in results.measures]:
            yield title, measures


def _figures(results: Results, measures: Sequence[str]) -> str:
    head = ["peer"]
    for name in measures:
        measure = MEASURES[name]
        sense = "" if measure.higher_is_better else " (less is better)"
        head += [f"{measure.title}, {measure.unit}{sense}", "Faultline ÷ this"]
    rows = []
    for participant in _ranked(results, measures[0]):
        row = [_name(participant)]
        for name in measures:
            row.append(_figure(results.measured(name, participant.peer.name)))
            is_us = participant.peer.name == FAULTLINE
            ratio = None if is_us else results.ratio(name, participant.peer.name)
            row.append(_ratio(ratio))
        if any(cell != "–" for cell in row[1:]):
            rows.append(row)
    return table(head, rows)


def _ranked(results: Results, measure: str) -> list[Participant]:
    """Return the participants, the best first; those without a figure last."""

    def rank(participant: Participant) -> tuple[bool, float]:
        found = results.measured(measure, participant.peer.name)
        if found is None:
            return True, 0.0
        return False, -found.median if MEASURES[measure].higher_is_better else found.median

    return sorted(results.installed, key=rank)


def _name(participant: Participant) -> str:
    version = "" if participant.peer.is_own else f" {participant.version}"
    broker = ", Redis" if participant.peer.broker == "redis" else ""
    node = ", Node" if participant.peer.runtime == "node" else ""
    title = f"{participant.peer.title}{version}{broker}{node}".strip()
    return f"**{title}**" if participant.peer.name == FAULTLINE else title


def _figure(found: Measurement | None) -> str:
    if found is None:
        return "–"
    spread = f" ± {found.spread / 2:.0%}" if found.n > 1 else ""
    return f"{number(found.median)}{spread} (n = {found.n})"


def _ratio(found: Measurement | None) -> str:
    if found is None:
        return "–"
    if found.n == 1:
        return f"{number(found.median)}×"
    return f"{number(found.median)}× ({number(found.low)}–{number(found.high)})"


def _workloads(results: Results) -> str:
    used = {sample.workload for sample in results.samples}
    rows = []
    for name, workload in WORKLOADS.items():
        if name in used:
            jobs = {sample.jobs for sample in results.samples if sample.workload == name}
            size = f"{min(jobs):,}" if len(jobs) == 1 else f"{min(jobs):,} to {max(jobs):,}"
            rows.append([name, workload.about, size])
    return table(["name", "description", "jobs, by peer"], rows)


def _settings(results: Results) -> str:
    rows = []
    for participant in results.installed:
        versions = ", ".join(f"{name} {version}" for name, version in participant.versions.items())
        used = {s.concurrency for s in results.samples if s.peer == participant.peer.name}
        concurrency = ", ".join(str(value) for value in sorted(used))
        rows.append([participant.peer.title, versions, concurrency, participant.peer.settings])
    return table(["peer", "versions", "concurrency C", "settings"], rows)


def _absences(results: Results) -> Iterable[str]:
    for participant in results.participants:
        title = participant.peer.title
        if participant.not_installed:
            yield f"{title}: not installed: {participant.not_installed}"
            continue
        for workload, reason in participant.facts()["cannot"].items():
            yield f"{title}, {workload}: {reason}"
    seen = set()
    for sample in results.samples:
        line = f"{sample.peer}, {sample.workload}: failed: {sample.problem}"
        if sample.problem and line not in seen:
            seen.add(line)
            yield line
    for name, reason in results.missing_sections.items():
        yield f"section {name}: {reason}"
    if results.left_out:
        yield f"left to `--all`: {', '.join(results.left_out)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
