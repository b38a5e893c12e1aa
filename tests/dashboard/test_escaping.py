"""Markup in jobs' data is shown as text and never executed."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import expect

from tests.protocol.steps import Lease, claim, claim_new, enqueue, expire

from .tab import PAGES, Tab

SCRIPT = "<script>window.executed = true</script>"
IMAGE = "<img src=x onerror='window.executed = true'>"


@pytest.fixture
def hostile_job(database_url: str) -> Lease:
    """A failed job with a refused write, whose every text is markup."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        first = claim_new(
            conn, worker=IMAGE, payload={"html": SCRIPT, IMAGE: [IMAGE]}, idempotency_key=SCRIPT
        )
        expire(conn, first)
        second = claim(conn, worker=SCRIPT)
        conn.execute(
            "SELECT faultline.record_rejection(%s, %s, %s, %s)",
            [first.job_id, first.token, IMAGE, "token_mismatch"],
        )
        conn.execute(
            "SELECT faultline.fail(%s, %s, %s, %s, '0', 'fatal')", [*second, f"{SCRIPT}{IMAGE}"]
        )
        conn.execute(
            "SELECT faultline.register_worker(%s, %s, 7, ARRAY['default'], false)", [IMAGE, SCRIPT]
        )
        enqueue(conn, payload={"html": SCRIPT})
        claim(conn, worker=IMAGE)
    return first


def test_markup_in_jobs_stays_text_on_every_page(tab: Tab, hostile_job: Lease) -> None:
    tab.go(f"jobs/{hostile_job.job_id}")
    tab.wait_for_data()
    expect(tab.find("pre[aria-label=Payload]")).to_contain_text(SCRIPT)
    expect(tab.find("pre[aria-label='Last error']")).to_contain_text(f"{SCRIPT}{IMAGE}")
    expect(tab.find(".facts")).to_contain_text(SCRIPT)
    expect(tab.find(".event-list")).to_contain_text(IMAGE)
    expect(tab.find(".timeline svg")).to_contain_text("token 2")
    assert_no_markup_executed(tab)
    for route in (
        *PAGES,
        "jobs?task=<script>window.executed=true</script>&queue=%3Cimg%20src=x%3E",
    ):
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            tab.go(route)
            tab.wait_for_data()
            assert_no_markup_executed(tab)


def assert_no_markup_executed(tab: Tab) -> None:
    assert tab.page.evaluate("window.executed") is None
    assert tab.find("img").count() == 0
    assert tab.find("#app script").count() == 0
