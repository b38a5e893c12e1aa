"""The tables of a report, rendered as Markdown and as HTML. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultline_drills.provenance import in_words

SUBJECTS = {"faultline": "Faultline", "naive": "without the fence"}


@dataclass(frozen=True, slots=True)
class ReportTable:
    title: str
    about: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def all_tables(facts: Mapping[str, Any]) -> list[ReportTable]:
    tables = [_duplicates(facts), _recoveries(facts), _faults(facts)]
    if facts["scenarios"] is not None:
        tables.append(_scenarios(facts["scenarios"]))
    others = facts["other_drills"]
    if "mutants" in others:
        tables.append(_mutants(others["mutants"]))
    tables += [_other(name, each) for name, each in others.items() if name != "mutants"]
    return tables


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _duplicates(facts: Mapping[str, Any]) -> ReportTable:
    rows = []
    for group in facts["groups"]:
        rate, tally = group["duplicate_rate"], group["tally"]
        low, high = rate["wilson_95"]
        rows.append(
            (
                f"{group['fault_rate']:.0%}",
                SUBJECTS[group["subject"]],
                f"{rate['n']:,}",
                str(sum(group["faults_injected"].values())),
                str(group["duplicates"]),
                percent(rate["rate"]),
                f"{percent(low)} to {percent(high)}",
                str(group["invariant_violations"]),
                str(tally.get("takeovers", 0)),
                str(tally.get("stale_rejections", 0)),
            )
        )
    about = (
        "Both queues ran with the same seeds, faults, workers and checker. A duplicate is a job that took"
        " effect more than once. The interval is the 95 % Wilson interval. Violations count findings of"
        " the checker's fourteen rules, of which it keeps a few per rule. Self-fencing is"
        f" {facts['self_fencing']}."
    )
    head = (
        "fault rate",
        "queue",
        "jobs",
        "faults",
        "duplicates",
        "rate",
        "interval",
        "violations",
        "takeovers",
        "late commits refused",
    )
    return ReportTable("Jobs that took effect more than once", about, head, tuple(rows))


def _recoveries(facts: Mapping[str, Any]) -> ReportTable:
    measured = (
        ("worker killed: from its death to the job's next claim", "crash_recovery_seconds"),
        (
            "worker stalled: from the expiry of its lease to the job's next claim",
            "stale_takeover_seconds",
        ),
    )
    rows = [
        (name, str(facts[key]["n"]), *(_seconds(facts[key], at) for at in ("p50", "p95", "max")))
        for name, key in measured
    ]
    about = (
        f"Faultline, all fault rates, {facts['workers']} workers, a lease of"
        f" {facts['lease_seconds']:g} s. Meanwhile other workers were killed, stopped and started on"
        " the same machine."
    )
    return ReportTable("Recovery", about, ("recovery", "n", "p50", "p95", "max"), tuple(rows))


def _seconds(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures[name]:.3f} s" if name in figures else "-"


def _faults(facts: Mapping[str, Any]) -> ReportTable:
    groups = facts["groups"]
    kinds = sorted({kind for group in groups for kind in group["faults_injected"]})
    head = (
        "fault",
        *(f"{SUBJECTS[each['subject']]}, {each['fault_rate']:.0%}" for each in groups),
    )
    rows = tuple(
        (kind.replace("_", " "), *(str(group["faults_injected"].get(kind, 0)) for group in groups))
        for kind in kinds
    )
    return ReportTable(
        "Injected faults", "Counted when they were injected, not when planned.", head, rows
    )


def _scenarios(rows: Iterable[Mapping[str, Any]]) -> ReportTable:
    return ReportTable(
        "Scenarios",
        "Each scenario runs real processes and is judged by the same fourteen rules. The queue without the"
        " fence runs those in which the fence protects the job, and must break a rule.",
        ("scenario", "Faultline", "without the fence", "result"),
        tuple(
            (each["scenario"], each["faultline"], each["naive"] or "-", each["note"])
            for each in rows
        ),
    )


def _mutants(facts: Mapping[str, Any]) -> ReportTable:
    mutants: Sequence[Mapping[str, Any]] = facts.get("mutants", [])
    killed = sum(bool(each.get("killed")) for each in mutants)
    return ReportTable(
        "Mutants",
        f"{killed} of {len(mutants)} inserted bugs were found, each by the layer that it names. Made by"
        f" `{facts.get('command')}` at commit {facts.get('commit') or 'unknown'}, seed"
        f" {facts.get('seed')}, on PostgreSQL {facts.get('postgres')}.",
        ("mutant", "layer", "found", "finding"),
        tuple(
            (
                str(each.get("name")),
                str(each.get("layer")),
                "yes" if each.get("killed") else "NO",
                str(each.get("how", "")),
            )
            for each in mutants
        ),
    )


def _other(name: str, facts: Mapping[str, Any]) -> ReportTable:
    """A table of another drill's numbers."""
    plain = {key: value for key, value in facts.items() if isinstance(value, str | int | float)}
    counted = facts.get("tally")
    if isinstance(counted, dict):
        plain |= counted
    shown = {key.replace("_", " "): str(value) for key, value in plain.items()}
    if isinstance(origin := facts.get("provenance"), dict):
        shown = in_words(origin) | shown
    return ReportTable(
        f"Drill: {name}",
        "From the file that this drill saved in the same folder.",
        ("figure", "value"),
        tuple(shown.items()),
    )
