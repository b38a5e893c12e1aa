"""What users put into jobs is shown, and never run."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import expect

from tests.protocol.steps import Lease, claim, claim_new, enqueue, expire

from .tab import PAGES, Tab

SCRIPT = "<script>window.harmed = true</script>"
IMAGE = "<img src=x onerror='window.harmed = true'>"


@pytest.fixture
def hostile_job(database_url: str) -> Lease:
    """Failed, refused and held by workers whose every text is markup."""
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
    tab.settle()
    expect(tab.find("pre[aria-label=Payload]")).to_contain_text(SCRIPT)
    expect(tab.find("pre[aria-label='Last error']")).to_contain_text(f"{SCRIPT}{IMAGE}")
    expect(tab.find(".facts")).to_contain_text(SCRIPT)
    expect(tab.find(".story")).to_contain_text(IMAGE)
    expect(tab.find(".timeline svg")).to_contain_text("token 2")
    assert_unharmed(tab)
    for route in (*PAGES, "jobs?task=<script>window.harmed=true</script>&queue=%3Cimg%20src=x%3E"):
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            tab.go(route)
            tab.settle()
            assert_unharmed(tab)


def assert_unharmed(tab: Tab) -> None:
    assert tab.page.evaluate("window.harmed") is None
    assert tab.find("img").count() == 0
    assert tab.find("#app script").count() == 0
