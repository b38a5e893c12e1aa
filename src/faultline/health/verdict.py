"""Judges a report: is the process alive, is it ready? Pure: the probe brings the time and the reports.

A process is restarted for being stuck, and only for that. Busy is not stuck: slots full of long jobs, a
handler that waits, a drain that takes its time. Nor is a database that is away: a new process would not
find it either, and the old one has jobs to finish. What is stuck: a process that says nothing any more
(stopped, or a call that holds the interpreter), an event loop that stands still (a coroutine that never
yields), a heartbeat that has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from faultline.health.report import Child, Report

Read = Callable[[str], Report | None]

SILENT_SECONDS = 10.0  # ten reports
STUCK_SECONDS = 60.0
STARTING_SECONDS = 300.0  # importing an application may take its time
_UNBORN_SECONDS = 60.0  # from the start of a process to its first report
_SKEW_SECONDS = 1.0


class Limits(NamedTuple):
    silent_seconds: float = SILENT_SECONDS
    stuck_seconds: float = STUCK_SECONDS
    starting_seconds: float = STARTING_SECONDS


class Verdict(NamedTuple):
    holds: bool
    why: str


def is_live(report: Report, now: float, limits: Limits, read: Read = lambda name: None) -> Verdict:
    """`read` finds the reports of supervised processes."""
    if stuck := _why_stuck(report, now, limits):
        return Verdict(False, f"{_name(report)} {stuck}")
    for child in report.children:
        if stuck := _why_child_stuck(child, now, limits, read):
            return Verdict(False, f"process {child.slot} of {len(report.children)}: {stuck}")
    return Verdict(True, f"{_name(report)} is alive: {_doing(report)}")


def is_well(report: Report, now: float, limits: Limits, read: Read = lambda name: None) -> Verdict:
    """Live, and heard by the database: the question of a person or a monitor, not of a kubelet.

    A worker whose heartbeats are not answered needs attention. A restart would rarely help it.
    """
    live = is_live(report, now, limits, read)
    if not live.holds:
        return live
    reports = [report, *(read(child.file) for child in report.children)]
    for each in reports:
        if each is not None and each.vitals is not None and each.vitals.unanswered is not None:
            return Verdict(False, f"{_name(each)} {each.vitals.unanswered}")
    return live


def is_ready(report: Report, now: float, limits: Limits, read: Read = lambda name: None) -> Verdict:
    live = is_live(report, now, limits, read)
    if not live.holds:
        return live
    if report.children:
        return _is_crew_ready(report, read)
    unready = "is starting" if report.vitals is None else report.vitals.unready
    if unready is not None:
        return Verdict(False, f"{_name(report)} {unready}")
    return Verdict(True, f"{_name(report)} is ready: {_doing(report)}")


def _why_stuck(report: Report, now: float, limits: Limits) -> str | None:
    age = now - report.written_at
    if age < -_SKEW_SECONDS:
        return "has not reported since the machine was started"
    if age > limits.silent_seconds:
        return f"has reported nothing for {age:.1f} s: it is gone, or stopped, or its interpreter is held"
    if report.kind == "supervisor":
        return None  # that it reports is all that it does
    if report.loop_turned_at is None or report.vitals is None:
        starting = report.written_at - report.started_at
        return (
            f"has been starting for {starting:.0f} s"
            if starting > limits.starting_seconds
            else None
        )
    stands = report.written_at - report.loop_turned_at
    if stands > limits.stuck_seconds:
        return f"is stuck: its event loop has stood still for {stands:.1f} s, a handler blocks it"
    if report.vitals.heartbeat_has_ended:
        return "is stuck: its heartbeat has ended, nobody renews its leases"
    due_at = report.vitals.heartbeat_due_at
    if due_at is not None and report.written_at - due_at > limits.stuck_seconds:
        return f"is stuck: its heartbeat is {report.written_at - due_at:.1f} s late"
    return None


def _why_child_stuck(child: Child, now: float, limits: Limits, read: Read) -> str | None:
    if child.state != "running":
        return None
    report = read(child.file)
    if report is not None:
        stuck = _why_stuck(report, now, limits)
        return None if stuck is None else f"{_name(report)} {stuck}"
    age = now - child.since
    return f"has not reported since its start {age:.1f} s ago" if age > _UNBORN_SECONDS else None


def _is_crew_ready(report: Report, read: Read) -> Verdict:
    """Every process that is meant to work does."""
    counted = len(report.children)
    wanted = [child for child in report.children if child.state != "drained"]
    if not wanted:
        return Verdict(False, f"all {counted} processes are drained")
    for child in wanted:
        found = read(child.file) if child.state == "running" else None
        if child.state != "running":
            unready: str | None = "is about to be started again"
        elif found is None or found.vitals is None:
            unready = "is starting"
        else:
            unready = found.vitals.unready
        if unready is not None:
            return Verdict(False, f"process {child.slot} of {counted} {unready}")
    return Verdict(True, f"{len(wanted)} of {counted} processes are ready")


def _name(report: Report) -> str:
    return f"{report.kind} {report.pid}" if report.vitals is None else report.vitals.name


def _doing(report: Report) -> str:
    if report.children:
        running = sum(child.state == "running" for child in report.children)
        return f"{running} of {len(report.children)} processes run"
    if report.loop_turned_at is None or report.vitals is None:
        return "it is starting"
    return report.vitals.doing
