"""The commands of `faultline schedules`."""

from __future__ import annotations

import pytest

from tests.schedules.steps import fire, make_due, set_schedule

from .conftest import Connection, Faultline


def add(faultline: Faultline, name: str = "report", *options: str) -> str:
    when = options or ("--cron", "30 2 * * *", "--tz", "Europe/Berlin")
    return faultline("schedules", "add", name, "shop.report", *when).out


def test_an_added_schedule_is_listed_with_its_next_time_in_its_zone(
    faultline: Faultline, conn: Connection
) -> None:
    assert faultline("schedules", "list").out == "no schedules\n"
    assert add(faultline).startswith("report is added; it fires next at ")
    set_schedule(conn, "report", "next_fire_at = '2030-07-01 00:30+00'")
    heading, line = faultline("schedules", "list").out.splitlines()
    assert heading.split()[:5] == ["schedule", "state", "when", "zone", "next"]
    assert "2030-07-01 02:30:00 CEST" in line
    assert "active" in line
    [listed] = faultline("schedules", "list", "--json").json
    assert (listed["name"], listed["cron"], listed["state"]) == ("report", "30 2 * * *", "active")


def test_show_prints_the_next_times_and_the_newest_firings(
    faultline: Faultline, conn: Connection
) -> None:
    add(faultline, "report", "--every", "60", "--jitter", "5", "--missed", "all")
    planned = make_due(conn)
    answer = fire(conn, planned)
    assert answer is not None

    shown = faultline("schedules", "show", "report").out
    assert "every 1 min (UTC)" in shown
    assert str(answer.job_ids[0]) in shown
    assert "all, at most 100" in shown
    found = faultline("schedules", "show", "report", "--json").json
    assert len(found["upcoming"]) == 5
    [firing] = found["firings"]
    assert (firing["outcome"], firing["job_id"]) == ("fired", str(answer.job_ids[0]))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ("last_error = 'no such zone'", "its next time cannot be computed: no such zone"),
        ("next_fire_at = '2001-01-01 00:00+00'", "it should have fired"),
        ("last_planned_at = '2999-01-01 00:00+00'", "so it waits until the clock is there again"),
        ("declared_by = 'code'", "the code of no live worker does"),
        ("paused_at = '2026-01-01 00:00+00', paused_reason = 'stock-taking'", "stock-taking"),
    ],
)
def test_why_a_schedule_does_not_fire_is_said(
    faultline: Faultline, conn: Connection, change: str, note: str
) -> None:
    add(faultline)
    set_schedule(conn, "report", change)
    assert note in faultline("schedules", "show", "report").out
    assert note in faultline("schedules", "list").out
    [shown] = faultline("schedules", "show", "report", "--json").json["notes"]
    assert note in shown


def test_a_row_with_an_unknown_zone_can_be_shown(faultline: Faultline, conn: Connection) -> None:
    add(faultline)
    set_schedule(conn, "report", "time_zone = 'Mars/Phobos', last_planned_at = clock_timestamp()")
    assert faultline("schedules", "list").code == 0
    assert faultline("schedules", "show", "report", "--json").json["upcoming"] == []


def test_a_schedule_is_paused_run_resumed_and_removed(
    faultline: Faultline, conn: Connection
) -> None:
    add(faultline)
    assert faultline("schedules", "pause", "report", "--reason", "x").out == "report is paused\n"
    assert faultline("schedules", "pause", "report").out == "report was paused already\n"
    job = faultline("schedules", "run-now", "report").out.strip()
    assert conn.execute("SELECT task FROM faultline.jobs WHERE id = %s", [job]).fetchall() == [
        ("shop.report",)
    ]
    assert faultline("schedules", "resume", "report", "--json").json == {
        "schedule": "report",
        "paused": False,
        "changed": True,
    }
    assert faultline("schedules", "resume", "report").out == "report was not paused\n"
    assert faultline("schedules", "remove", "report").out == "report is removed\n"
    actions = conn.execute(
        "SELECT action, object, result FROM faultline.audit_log ORDER BY id"
    ).fetchall()
    assert [f"{action} {result}" for action, _, result in actions] == [
        *("add done", "pause done", "pause unchanged", "run done", "resume done"),
        *("resume unchanged", "remove done"),
    ]
    assert {target for _, target, _ in actions} == {"schedule report"}


@pytest.mark.parametrize("command", ["show", "pause", "resume", "run-now", "remove"])
def test_a_mistyped_name_is_answered_with_the_closest(faultline: Faultline, command: str) -> None:
    add(faultline)
    refusal = faultline("schedules", command, "reprot").refused("unknown_schedule")
    assert refusal.hint == "did you mean report?"


def test_an_existing_schedule_changes_only_with_replace(
    faultline: Faultline, conn: Connection
) -> None:
    add(faultline)
    again = ("schedules", "add", "report", "shop.report", "--every", "60")
    faultline(*again).refused("illegal_transition")
    assert faultline(*again, "--replace").out.startswith("report is changed; it fires next at ")
    set_schedule(conn, "report", "declared_by = 'code'")
    refusal = faultline(*again, "--replace").refused("illegal_transition")
    assert "Code declares it" in (refusal.hint or "")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--cron", "x"), "invalid_schedule"),
        (("--cron", "0 6 * * *", "--tz", "Mars/Phobos"), "invalid_schedule"),
        (("--every", "0"), "invalid_input"),
        (("--every", "60", "--anchor", "yesterday"), "invalid_input"),
        ((), "invalid_input"),
    ],
)
def test_a_wrong_definition_is_refused(
    faultline: Faultline, conn: Connection, options: tuple[str, ...], code: str
) -> None:
    faultline("schedules", "add", "report", "shop.report", *options).refused(code)
    assert conn.execute("SELECT count(*) FROM faultline.schedules").fetchone() == (0,)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("last_error = 'no such zone'", "cannot be used: report"),
        ("next_fire_at = '2001-01-01 00:00+00'", "more than a minute ago: report"),
        ("declared_by = 'code'", "no live worker, and still fire: report"),
    ],
)
def test_doctor_names_schedules_that_do_not_fire_or_belong_to_no_code(
    faultline: Faultline, conn: Connection, change: str, says: str
) -> None:
    add(faultline)
    assert doctor(faultline) == ["1 schedule"]
    set_schedule(conn, "report", change)
    [found] = doctor(faultline)
    assert says in found


def doctor(faultline: Faultline) -> list[str]:
    checks = faultline("doctor", "--json").json["checks"]
    return [check["says"] for check in checks if check["name"] == "schedules"]
