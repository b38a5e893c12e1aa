"""Claims about probes: a busy process, or one without a database, is not stuck."""

from __future__ import annotations

import pytest

from faultline.health.health_file import ChildStatus, Report, Vitals
from faultline.health.probe import Limits, is_live, is_ready, is_well

NOW = 1_000.0
LIMITS = Limits(silent_seconds=10, stuck_seconds=60, starting_seconds=300)
WELL = Report(
    kind="worker",
    pid=7,
    started_at=500.0,
    written_at=NOW - 0.5,
    loop_turned_at=NOW - 1,
    vitals=Vitals("worker a", "10 of 10 slots are busy", heartbeat_due_at=NOW + 3),
)


def with_vitals(**changes: object) -> Report:
    assert WELL.vitals is not None
    return WELL._replace(vitals=WELL.vitals._replace(**changes))  # type: ignore[arg-type]


BUSY = {
    "all slots full": WELL,
    "a loop that was held up for a while": WELL._replace(loop_turned_at=NOW - 59),
    "a heartbeat that waits for the database": with_vitals(heartbeat_due_at=None),
    "a heartbeat that is a little late": with_vitals(heartbeat_due_at=NOW - 59),
    "the database away": with_vitals(unready="cannot claim"),
    "draining": with_vitals(unready="is draining"),
    "starting": WELL._replace(vitals=None, loop_turned_at=None, started_at=NOW - 299),
    "a thread that was late to write": WELL._replace(written_at=NOW - 9.9),
}
STUCK = {
    "a loop that stands still": (WELL._replace(loop_turned_at=NOW - 61), "event loop"),
    "no report for long": (WELL._replace(written_at=NOW - 10.1), "not reported for 10.1 s"),
    "no heartbeat any more": (with_vitals(heartbeat_has_ended=True), "heartbeat has ended"),
    "a heartbeat that is overdue": (with_vitals(heartbeat_due_at=NOW - 61), "heartbeat is 60.5"),
    "starting for ever": (
        WELL._replace(vitals=None, loop_turned_at=None, started_at=NOW - 301),
        "starting for 300 s",
    ),
    "a file from before the machine started": (
        WELL._replace(written_at=NOW + 5_000),
        "since the machine started",
    ),
}


@pytest.mark.parametrize("report", BUSY.values(), ids=BUSY)
def test_busy_is_live(report: Report) -> None:
    assert is_live(report, NOW, LIMITS).holds


@pytest.mark.parametrize(("report", "why"), STUCK.values(), ids=STUCK)
def test_stuck_is_neither_live_nor_ready(report: Report, why: str) -> None:
    live = is_live(report, NOW, LIMITS)
    assert not live.holds
    assert why in live.why
    assert is_ready(report, NOW, LIMITS) == live


def test_a_live_process_without_a_reason_against_it_is_ready() -> None:
    assert is_ready(WELL, NOW, LIMITS) == (True, "worker a is ready: 10 of 10 slots are busy")
    assert is_ready(with_vitals(unready="is draining"), NOW, LIMITS) == (
        False,
        "worker a is draining",
    )
    assert not is_ready(BUSY["starting"], NOW, LIMITS).holds


def test_a_worker_that_the_database_does_not_answer_is_live_and_not_well() -> None:
    cut_off = with_vitals(unanswered="has had no answer to a heartbeat for 15.1 s")
    assert is_live(cut_off, NOW, LIMITS).holds
    assert is_well(cut_off, NOW, LIMITS) == (
        False,
        "worker a has had no answer to a heartbeat for 15.1 s",
    )
    assert is_well(WELL, NOW, LIMITS) == is_live(WELL, NOW, LIMITS)
    crew_of_two = crew("running", "running")
    reports = {"file.0": WELL, "file.1": WELL, "file.2": cut_off}
    assert not is_well(crew_of_two, NOW, LIMITS, reports.get).holds


# ── several processes ────────────────────────────────────────────────────────────────────────────


def crew(*states: str, age: float = 5.0) -> Report:
    children = [
        ChildStatus(slot, 100 + slot, state, NOW - age, f"file.{slot}")
        for slot, state in enumerate(states, 1)
    ]
    return Report("supervisor", 7, 500.0, NOW - 0.5, None, None, tuple(children))


def test_the_stuck_one_of_several_processes_is_named() -> None:
    stuck = WELL._replace(loop_turned_at=NOW - 61)
    reports = {"file.1": WELL, "file.2": stuck, "file.3": WELL}
    live = is_live(crew("running", "running", "running"), NOW, LIMITS, reports.get)
    assert not live.holds
    assert live.why.startswith("process 2 of 3: worker a is stuck")


def test_a_restarting_child_does_not_make_the_supervisor_stuck() -> None:
    reports = {"file.1": WELL}
    report = crew("running", "waiting")
    assert is_live(report, NOW, LIMITS, reports.get).holds
    assert is_ready(report, NOW, LIMITS, reports.get) == (
        False,
        "process 2 of 2 is about to be restarted",
    )


def test_a_process_that_never_reports_is_stuck_after_a_minute() -> None:
    files = {"file.1": WELL}
    assert is_live(crew("running", "running", age=59), NOW, LIMITS, files.get).holds
    late = is_live(crew("running", "running", age=61), NOW, LIMITS, files.get)
    assert (late.holds, late.why[:15]) == (False, "process 2 of 2:")


def test_the_drained_are_not_missed_unless_all_are() -> None:
    reports = {"file.2": WELL}
    assert is_ready(crew("drained", "running"), NOW, LIMITS, reports.get).holds
    assert not is_ready(crew("drained", "drained"), NOW, LIMITS, reports.get).holds
    assert is_live(crew("drained", "drained"), NOW, LIMITS, reports.get).holds


def test_a_supervisor_that_stands_still_is_not_live() -> None:
    report = crew("drained")._replace(written_at=NOW - 11)
    assert not is_live(report, NOW, LIMITS).holds
