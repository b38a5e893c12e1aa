"""Small screens and long lists."""

from __future__ import annotations

import re

import psycopg
import pytest
from playwright.sync_api import expect

from tests.protocol.steps import claim_batch, claim_new, enqueue, expire, take_over

from .conftest import PHONE, OpenTab
from .serving import Inspector
from .tab import PAGES, Tab

LONG = "a_name_without_a_space_that_is_far_wider_than_any_phone_" * 2
MANY = 10_000


@pytest.mark.slow
def test_no_page_scrolls_sideways_on_a_phone(
    open_tab: OpenTab, inspector: Inspector, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        first = claim_new(conn, worker=LONG, task=LONG, payload={LONG: LONG}, idempotency_key=LONG)
        second = take_over(conn, first, worker=f"{LONG}2")
        conn.execute(
            "SELECT faultline.record_rejection(%s, 1, %s, 'token_mismatch')", [first.job_id, LONG]
        )
        conn.execute("SELECT faultline.fail(%s, %s, %s, %s, '0', 'fatal')", [*second, LONG])
        conn.execute(
            "SELECT faultline.register_worker(%s, %s, 7, %s, false)", [LONG, LONG, [LONG[:60]]]
        )
        enqueue(conn, task=LONG, queue=LONG[:60])
        claim_batch(conn, 1, worker=LONG, queues=[LONG[:60]])
    tab = open_tab(inspector.url, viewport=PHONE)
    for route in (*PAGES, f"jobs/{first.job_id}"):
        tab.go(route)
        tab.wait_for_data()
        assert tab.sideways_overflow() == 0, route
    tab.go("overview")
    tab.page.get_by_role("button", name="Menu").click()
    expect(tab.page.get_by_role("link", name="Workers", exact=True)).to_be_visible()
    assert tab.sideways_overflow() == 0
    tab.page.get_by_role("link", name="Workers", exact=True).click()
    expect(tab.find("h1")).to_have_text("Workers")
    expect(tab.find("nav#navigation")).to_be_hidden()


@pytest.mark.slow
def test_ten_thousand_rows_are_shown_a_page_at_a_time(tab: Tab, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(
            "SELECT FROM faultline.enqueue_many("
            "'send_mail', ARRAY(SELECT '{}'::jsonb FROM generate_series(1, %s)))",
            [MANY],
        )
        conn.execute("SELECT FROM faultline.claim('one', ARRAY['default'], %s, '1 hour')", [MANY])
        conn.execute(
            "INSERT INTO faultline.workers (id, host, pid, queues, holds_locks)"
            " SELECT 'worker-' || n, 'host', n, '{default}', false FROM generate_series(1, 2000) AS n"
        )
    for route, rows, what in (
        ("leases", 100, "leases"),
        ("jobs", 50, "jobs"),
        ("workers", 100, "workers"),
    ):
        tab.go(route)
        expect(tab.find("tbody tr")).to_have_count(rows)
        assert tab.page.evaluate("document.querySelectorAll('*').length") < 4_000
        first = tab.find("tbody tr").first.inner_text()
        pager = tab.page.get_by_role("navigation", name=f"Pages of {what}")
        pager.get_by_role("button", name="Next").click()
        expect(tab.find("tbody tr").first).not_to_have_text(first)
        expect(tab.find("tbody tr")).to_have_count(rows)
        pager.get_by_role("button", name="Previous").click()
        expect(pager.get_by_role("button", name="Previous")).to_be_disabled()


@pytest.mark.slow
def test_a_job_with_a_thousand_attempts_shows_the_newest(tab: Tab, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        lease = claim_new(conn, max_attempts=1000)
        for _ in range(40):
            lease = take_over(conn, lease)
    tab.go(f"jobs/{lease.job_id}")
    lanes = tab.find("[data-part=attempt]")
    expect(lanes).to_have_count(12)
    expect(lanes.last).to_have_attribute("data-token", "41")
    tab.page.get_by_role("button", name="Show earlier attempts").click()
    expect(lanes).to_have_count(24)


@pytest.mark.slow
def test_an_expired_lease_is_listed_first(tab: Tab, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        claim_new(conn, worker="healthy", task="healthy_task")
        stalled = claim_new(conn, worker="stalled", task="stalled_task")
        expire(conn, stalled)
    tab.go("leases")
    expect(tab.find("tbody tr")).to_have_count(2)
    first, second = tab.find("tbody tr").all()
    expect(first).to_contain_text("stalled_task")
    expect(first).to_contain_text("expired")
    expect(first.locator(".badge")).to_have_text("high")
    expect(second).to_contain_text("healthy_task")
    expect(second.locator(".badge")).to_have_text("low")
    expect(first.get_by_role("meter")).to_have_attribute("aria-valuenow", "0.00")
    expect(second.get_by_role("meter")).to_have_attribute(
        "aria-valuenow", re.compile(r"1|0\.[6-9]")
    )
