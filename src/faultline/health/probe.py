"""Decides from a health report whether a process is live, ready and well. Pure.

Only a stuck process should be restarted. A process is stuck if it writes no report (it is stopped, or a call
holds the interpreter), if its event loop makes no progress (a coroutine never yields), or if its heartbeat
has ended. A busy process is not stuck: full slots, a waiting handler, a slow drain. An unavailable database
is no reason either: a new process could not reach it, and the old one has jobs to finish.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from faultline.health.health_file import ChildStatus, Report

Read = Callable[[str], Report | None]

SILENT_SECONDS = 10.0  # ten times the interval of reports
STUCK_SECONDS = 60.0
STARTING_SECONDS = 300.0  # importing an application may be slow
_FIRST_REPORT_SECONDS = 60.0  # from the start of a process to its first report
_SKEW_SECONDS = 1.0


class Limits(NamedTuple):
    silent_seconds: float = SILENT_SECONDS
    stuck_seconds: float = STUCK_SECONDS
    starting_seconds: float = STARTING_SECONDS


class ProbeResult(NamedTuple):
    holds: bool
    why: str


def is_live(
    report: Report, now: float, limits: Limits, read: Read = lambda name: None
) -> ProbeResult:
    """`read` reads the reports of supervised processes."""
    if stuck := _why_stuck(report, now, limits):
        return ProbeResult(False, f"{_name(report)} {stuck}")
    for child in report.children:
        if stuck := _why_child_stuck(child, now, limits, read):
            return ProbeResult(False, f"process {child.slot} of {len(report.children)}: {stuck}")
    return ProbeResult(True, f"{_name(report)} is alive: {_doing(report)}")


def is_well(
    report: Report, now: float, limits: Limits, read: Read = lambda name: None
) -> ProbeResult:
    """Live, with answered heartbeats: for operators and monitoring, not a kubelet.

    A worker without answers to its heartbeats needs attention, but a restart would rarely help.
    """
    live = is_live(report, now, limits, read)
    if not live.holds:
        return live
    reports = [report, *(read(child.file) for child in report.children)]
    for each in reports:
        if each is not None and each.vitals is not None and each.vitals.unanswered is not None:
            return ProbeResult(False, f"{_name(each)} {each.vitals.unanswered}")
    return live


def is_ready(
    report: Report, now: float, limits: Limits, read: Read = lambda name: None
) -> ProbeResult:
    live = is_live(report, now, limits, read)
    if not live.holds:
        return live
    if report.children:
        return _are_children_ready(report, read)
    unready = "is starting" if report.vitals is None else report.vitals.unready
    if unready is not None:
        return ProbeResult(False, f"{_name(report)} {unready}")
    return ProbeResult(True, f"{_name(report)} is ready: {_doing(report)}")


def _why_stuck(report: Report, now: float, limits: Limits) -> str | None:
    age = now - report.written_at
    if age < -_SKEW_SECONDS:
        return "has not reported since the machine started"
    if age > limits.silent_seconds:
        return f"has not reported for {age:.1f} s: it has ended, is stopped, or a call blocks its interpreter"
    if report.kind == "supervisor":
        return None  # a supervisor only has to write reports
    if report.loop_turned_at is None or report.vitals is None:
        starting = report.written_at - report.started_at
        return (
            f"has been starting for {starting:.0f} s"
            if starting > limits.starting_seconds
            else None
        )
    blocked = report.written_at - report.loop_turned_at
    if blocked > limits.stuck_seconds:
        return f"is stuck: a handler has blocked its event loop for {blocked:.1f} s"
    if report.vitals.heartbeat_has_ended:
        return "is stuck: its heartbeat has ended, and its leases are not renewed"
    due_at = report.vitals.heartbeat_due_at
    if due_at is not None and report.written_at - due_at > limits.stuck_seconds:
        return f"is stuck: its heartbeat is {report.written_at - due_at:.1f} s late"
    return None


def _why_child_stuck(child: ChildStatus, now: float, limits: Limits, read: Read) -> str | None:
    if child.state != "running":
        return None
    report = read(child.file)
    if report is not None:
        stuck = _why_stuck(report, now, limits)
        return None if stuck is None else f"{_name(report)} {stuck}"
    age = now - child.since
    return (
        f"has not reported since its start {age:.1f} s ago" if age > _FIRST_REPORT_SECONDS else None
    )


def _are_children_ready(report: Report, read: Read) -> ProbeResult:
    """Whether every process that is not drained is ready."""
    counted = len(report.children)
    wanted = [child for child in report.children if child.state != "drained"]
    if not wanted:
        return ProbeResult(False, f"all {counted} processes are drained")
    for child in wanted:
        found = read(child.file) if child.state == "running" else None
        if child.state != "running":
            unready: str | None = "is about to be restarted"
        elif found is None or found.vitals is None:
            unready = "is starting"
        else:
            unready = found.vitals.unready
        if unready is not None:
            return ProbeResult(False, f"process {child.slot} of {counted} {unready}")
    return ProbeResult(True, f"{len(wanted)} of {counted} processes are ready")


def _name(report: Report) -> str:
    return f"{report.kind} {report.pid}" if report.vitals is None else report.vitals.name


def _doing(report: Report) -> str:
    if report.children:
        running = sum(child.state == "running" for child in report.children)
        return f"{running} of {len(report.children)} processes are running"
    if report.loop_turned_at is None or report.vitals is None:
        return "it is starting"
    return report.vitals.doing
