"""The pages of limits, the link from a waiting job, and changes by an operator."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import expect

from faultline.statements.keys import Scope
from tests.limits import steps
from tests.protocol.steps import value

from .conftest import PHONE, OpenTab
from .serving import Inspector
from .tab import Tab
from .test_actions import make_key, open_key_dialog_and_enter, operator_tab

__all__ = ["operator_tab"]
SHOTS = os.environ.get("FAULTLINE_TEST_SHOTS")


def wait_for_customers(conn: psycopg.Connection[object]) -> str:
    """Jobs of two customers wait; returns the id of the last."""
    steps.limit_customers(conn, 2)
    steps.set_limit(conn, "queue:default", 50, rate_jobs=100, rate_seconds=60, burst=20)
    steps.set_limit(conn, "task:report", 0)
    ids = steps.enqueue(conn, [{"customer": 42}] * 5 + [{"customer": 7}] * 4)
    steps.enqueue(conn, [{}] * 2, task="report")
    steps.claim_all(conn)
    return str(ids[-1])


def keep(tab: Tab, name: str) -> None:
    if SHOTS:
        tab.page.screenshot(path=Path(SHOTS, f"{name}.png"), full_page=True)


def test_limits_are_listed_and_each_has_a_page_with_its_fullest_keys(
    open_tab: OpenTab, inspector: Inspector, conn: psycopg.Connection[object]
) -> None:
    wait_for_customers(conn)
    tab = open_tab(inspector.url)
    tab.go("limits")
    tab.wait_for_data()
    row = tab.page.get_by_role("row").filter(has_text="key:customer")
    expect(row).to_contain_text("at most 2 at once for each key")
    keep(tab, "limits")
    row.get_by_role("link", name="key:customer").click()
    expect(tab.find("h1")).to_have_text("key:customer")
    first = tab.page.get_by_role("row").nth(1)
    expect(first.get_by_role("cell")).to_contain_text(["42", "2", "3"])
    keep(tab, "limit")


def test_the_page_of_a_waiting_job_links_to_its_limit(
    open_tab: OpenTab, inspector: Inspector, conn: psycopg.Connection[object]
) -> None:
    tab = open_tab(inspector.url)
    tab.go(f"jobs/{wait_for_customers(conn)}")
    tab.wait_for_data()
    expect(tab.find(".job-title .badge")).to_have_text("waiting")
    expect(tab.find(".why-answer")).to_contain_text("It waits for a place: 2 of 2 of limit")
    keep(tab, "job")
    tab.page.get_by_role("link", name="key:customer=7").click()
    expect(tab.find("h1")).to_have_text("key:customer")


@pytest.mark.slow
def test_waiting_jobs_are_waiting_in_the_lists(
    open_tab: OpenTab, inspector: Inspector, conn: psycopg.Connection[object]
) -> None:
    wait_for_customers(conn)
    tab = open_tab(inspector.url)
    tab.go("jobs")
    expect(tab.find("td .badge", has_text="waiting")).to_have_count(7)
    tab.go("queues")
    expect(tab.page.get_by_role("row").nth(1)).to_contain_text("7")
    keep(tab, "queues")


@pytest.mark.slow
@pytest.mark.parametrize("route", ["limits", "limits/key%3Acustomer"])
def test_the_pages_of_limits_fit_a_phone(
    open_tab: OpenTab, inspector: Inspector, conn: psycopg.Connection[object], route: str
) -> None:
    wait_for_customers(conn)
    tab = open_tab(inspector.url, viewport=PHONE)
    tab.go(route)
    tab.wait_for_data()
    assert tab.sideways_overflow() == 0
    keep(tab, f"phone-{route.replace('/', '-').replace('%3A', '-')}")


@pytest.mark.slow
def test_an_operator_changes_and_removes_a_limit(
    operator_tab: Tab, conn: psycopg.Connection[object]
) -> None:
    wait_for_customers(conn)
    operator_tab.expects_failed_requests = True  # the API refuses a change
    operator_tab.go("limits/task%3Areport")
    open_key_dialog_and_enter(operator_tab, make_key(conn, Scope.OPERATE))
    page = operator_tab.page
    page.get_by_role("button", name="Change", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Jobs at once")).to_have_value("0")
    dialog.get_by_label("Jobs at once").fill("4")
    dialog.get_by_label("Jobs in a period").fill("10")
    keep(operator_tab, "change")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog).to_contain_text("Nothing was changed.")  # the period is missing
    dialog.get_by_label("Seconds of the period").fill("2.5")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(operator_tab.find(".facts")).to_contain_text("at most 4 at once; 10 in 2.5 s")
    of_report = "SELECT max_running FROM faultline.limits WHERE name = 'task:report'"
    assert value(conn, of_report) == 4
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(operator_tab.find("h1")).to_have_text("Limits")
    assert value(conn, "SELECT count(*) FROM faultline.limits WHERE name = 'task:report'") == 0
