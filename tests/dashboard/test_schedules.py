"""The pages of schedules, the links to them, and actions by an operator."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import expect

from faultline.statements.keys import Scope
from tests.protocol.steps import value
from tests.schedules.steps import add, fire, make_due, set_schedule

from .conftest import PHONE, OpenTab
from .serving import Inspector
from .tab import Tab
from .test_actions import (
    make_key,
    open_key_dialog_and_enter,
    operator_tab,
    press,
    press_and_confirm,
)
from .test_escaping import IMAGE, SCRIPT, assert_no_markup_executed

__all__ = ["operator_tab"]
Connection = psycopg.Connection[Any]
SHOTS = os.environ.get("FAULTLINE_TEST_SHOTS")
LONG = "a-name-of-a-schedule-that-is-far-wider-than-any-phone-" * 3
RIGHT_TO_LEFT = "\u202e\u05d0\u05d1\u05d2"


def make_schedules(conn: Connection) -> str:
    """One schedule in each state; returns the id of the job of `shop:report`."""
    add(conn, "shop:report", cron="30 6 * * 1-5", time_zone="Europe/Berlin", task="shop.report")
    answer = fire(conn, make_due(conn, "shop:report"), name="shop:report")
    assert answer is not None
    set_schedule(conn, "shop:report", "next_fire_at = '2100-01-04 05:30Z'")
    add(conn, "sync", every_seconds=300, jitter_seconds=20, missed="all")
    make_due(conn, "sync", minutes_ago=12)
    add(conn, "broken", cron="0 6 * * *", time_zone="Mars/Olympus")
    error = f"the time zone cannot be read: {SCRIPT}{IMAGE}{RIGHT_TO_LEFT}{'x' * 150}"
    conn.execute("UPDATE faultline.schedules SET last_error = %s WHERE name = 'broken'", [error])
    add(conn, LONG)
    conn.execute("SELECT faultline.pause_schedule(%s, %s)", [LONG, f"stock-taking {SCRIPT}"])
    former = '[{"name": "former", "task": "t", "every_seconds": 3600}]'
    conn.execute("SELECT faultline.declare_schedules('gone', %s)", [former])
    return str(answer.job_ids[0])


def keep(tab: Tab, name: str) -> None:
    if SHOTS:
        tab.page.screenshot(path=Path(SHOTS, f"{name}.png"), full_page=True)


def test_schedules_are_listed_with_their_states_and_times(
    open_tab: OpenTab, inspector: Inspector, conn: Connection
) -> None:
    job_id = make_schedules(conn)
    tab = open_tab(inspector.url)
    tab.go("schedules")
    tab.wait_for_data()
    keep(tab, "schedules")

    def row(name: str) -> Any:
        return tab.page.get_by_role("row").filter(has_text=name)

    for name, state in {
        "shop:report": "active",
        "sync": "overdue",
        "broken": "failing",
        LONG: "paused",
        "former": "undeclared",
    }.items():
        expect(row(name).locator(".badge")).to_have_text(state)
    expect(row("shop:report")).to_contain_text("30 6 * * 1-5")
    expect(row("shop:report")).to_contain_text("Europe/Berlin")
    next_firing = row("shop:report").locator("td[data-label='Next firing']")
    expect(next_firing).to_contain_text("Mon 4 Jan 2100, 06:30:00")  # in Berlin
    expect(next_firing).to_contain_text(re.compile(r"in [\d,]+ d"))
    expect(row("sync").locator("td[data-label='Next firing']")).to_contain_text("late")
    expect(row("broken")).to_contain_text(IMAGE)
    assert_no_markup_executed(tab)
    row("shop:report").get_by_role("link", name="newest job").click()
    expect(tab.page.get_by_text(job_id, exact=True)).to_be_visible()


def test_a_schedule_has_a_page_and_the_pages_of_its_jobs_link_to_it(
    open_tab: OpenTab, inspector: Inspector, conn: Connection
) -> None:
    job_id = make_schedules(conn)
    tab = open_tab(inspector.url)
    tab.go(f"jobs/{job_id}")
    tab.wait_for_data()
    tab.page.get_by_role("link", name="shop:report", exact=True).click()
    expect(tab.find("h1")).to_have_text("shop:report")
    expect(tab.find(".job-title .badge")).to_have_text("active")
    assert tab.page.title() == "Schedule shop:report · Faultline"
    times = tab.page.get_by_role("list").filter(has_text="2100").get_by_role("listitem")
    expect(times).to_have_count(5)
    expect(times.nth(1)).to_contain_text("Tue 5 Jan 2100, 06:30:00")
    keep(tab, "schedule")
    firings = tab.page.get_by_role("table", name="Newest firings")
    expect(firings.locator(".badge")).to_have_text("fired")
    firings.get_by_role("link").click()
    expect(tab.page.get_by_text(job_id, exact=True)).to_be_visible()


@pytest.mark.slow
def test_a_job_whose_key_only_looks_like_a_schedules_has_no_link(
    open_tab: OpenTab, inspector: Inspector, conn: Connection
) -> None:
    key = "schedule:report:2026-01-01T00:00:00.000000Z"
    job_id = value(
        conn, f"SELECT job_id::text FROM faultline.enqueue('t', idempotency_key => '{key}')"
    )
    tab = open_tab(inspector.url)
    tab.go(f"jobs/{job_id}")
    tab.wait_for_data()
    expect(tab.find(".facts")).to_contain_text(key)
    expect(tab.find(".facts a", has_text="report")).to_have_count(0)


@pytest.mark.slow
def test_a_schedules_page_says_why_it_does_not_fire_and_its_texts_are_isolated(
    open_tab: OpenTab, inspector: Inspector, conn: Connection
) -> None:
    make_schedules(conn)
    tab = open_tab(inspector.url)
    tab.go("schedules/broken")
    tab.wait_for_data()
    why = tab.find(".why")
    expect(why).to_contain_text("Its next time cannot be computed")
    expect(why.locator("bdi")).to_contain_text(f"{SCRIPT}{IMAGE}{RIGHT_TO_LEFT}")
    keep(tab, "schedule-broken")
    assert_no_markup_executed(tab)


def test_the_overview_names_failing_overdue_and_undeclared_schedules(
    open_tab: OpenTab, inspector: Inspector, conn: Connection
) -> None:
    make_schedules(conn)
    tab = open_tab(inspector.url)
    tab.go("overview")
    tab.wait_for_data()
    items = tab.find(".attention li")
    failing = items.filter(has_text="broken does not fire")
    expect(failing).to_have_attribute("data-level", "problem")
    expect(failing.locator("bdi").last).to_contain_text(RIGHT_TO_LEFT)
    expect(items.filter(has_text=re.compile("sync should have fired 1[23] min"))).to_have_attribute(
        "data-level", "problem"
    )
    expect(items.filter(has_text="Code declared the schedule former")).to_have_attribute(
        "data-level", "warning"
    )
    expect(tab.find(".attention")).not_to_contain_text(LONG)  # it is paused
    keep(tab, "overview")
    items.get_by_role("link", name="sync", exact=True).click()
    expect(tab.find("h1")).to_have_text("sync")
    assert_no_markup_executed(tab)


@pytest.mark.slow
@pytest.mark.parametrize(
    "route", ["schedules", f"schedules/{LONG}", "schedules/broken", "overview"]
)
def test_the_pages_of_schedules_fit_a_phone(
    open_tab: OpenTab, inspector: Inspector, conn: Connection, route: str
) -> None:
    make_schedules(conn)
    tab = open_tab(inspector.url, viewport=PHONE)
    tab.go(route)
    tab.wait_for_data()
    assert tab.sideways_overflow() == 0
    keep(tab, f"phone-{route.replace('/', '-')[:30]}")


@pytest.mark.slow
def test_the_list_with_an_operators_buttons_fits_its_card_at_every_width(
    operator_tab: Tab, conn: Connection
) -> None:
    make_schedules(conn)
    tab = operator_tab
    tab.go("schedules")
    tab.wait_for_data()
    open_key_dialog_and_enter(tab, make_key(conn, Scope.OPERATE))
    expect(tab.page.get_by_role("button", name="Run now")).to_have_count(5)
    for width in (360, 830, 1010, 1090, 1210, 1280):
        tab.page.set_viewport_size({"width": width, "height": 900})
        keep(tab, f"schedules-{width}")
        cut_off = tab.find(".table").evaluate(
            "each => each.offsetWidth - each.parentElement.clientWidth"
        )
        assert cut_off <= 0, width


@pytest.mark.slow
def test_an_operator_pauses_resumes_and_runs_a_schedule(
    operator_tab: Tab, conn: Connection
) -> None:
    add(conn, "report", task="shop.report")
    tab = operator_tab
    tab.go("schedules")
    tab.wait_for_data()
    expect(tab.page.get_by_role("button", name="Run now")).to_have_count(0)  # no key yet
    open_key_dialog_and_enter(tab, make_key(conn, Scope.OPERATE))
    expect(tab.page.get_by_role("columnheader", name="Actions")).to_have_count(1)
    keep(tab, "schedules-operator")
    press_and_confirm(tab, "Pause", "report")
    expect(tab.find("td[data-label=State]")).to_have_text("paused")
    assert value(conn, "SELECT paused_reason FROM faultline.schedules") == "paused in the dashboard"
    tab.page.get_by_role("link", name="report", exact=True).click()
    expect(tab.find(".why")).to_contain_text("It is paused since")
    press_and_confirm(tab, "Resume", "report")
    expect(tab.find(".job-title .badge")).to_have_text("active")
    press_and_confirm(tab, "Run now", "report")
    expect(tab.find("td[data-label=Outcome]")).to_have_text("manual")
    assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE task = 'shop.report'") == 1


@pytest.mark.slow
def test_a_failed_action_stays_visible_and_names_the_schedule(
    operator_tab: Tab, conn: Connection
) -> None:
    operator_tab.expects_failed_requests = True  # the API refuses the action
    add(conn, "report")
    operator_tab.go("schedules")
    operator_tab.wait_for_data()
    open_key_dialog_and_enter(operator_tab, make_key(conn, Scope.OPERATE))
    dialog = press(operator_tab, "Run now", "report")
    conn.execute("SELECT faultline.remove_schedule('report')")
    dialog.get_by_role("button", name="Run now", exact=True).click()
    expect(dialog).to_contain_text("Nothing was changed.")
    expect(dialog).to_contain_text("There is no schedule 'report'")
    keep(operator_tab, "dialog-failed")
    expect(operator_tab.page.get_by_role("dialog", name="Run now: report")).to_be_visible()
