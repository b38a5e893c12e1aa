"""The page of a job: exact numbers, why it waits, tracebacks, right-to-left text."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import expect
from psycopg.types.json import Jsonb

from tests.protocol.steps import claim_batch, enqueue

from .tab import Tab

BEYOND_DOUBLES = 2**53 + 1  # JavaScript reads it as 2**53
PRECISE = "0.10000000000000000001"
TRACEBACK = (
    'ValueError: no\n\nTraceback (most recent call last):\n  File "shop.py", line 7\nValueError: no'
)
RIGHT_TO_LEFT = "\u202etxt.\u05e9\u05dc"  # a right-to-left override, and Hebrew letters

# Right-to-left texts that are not inside an element that isolates their direction.
_NOT_ISOLATED = """
    const found = [];
    const walker = document.createTreeWalker(document.getElementById("app"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const { data, parentElement } = walker.currentNode;
        const isAlone = parentElement.matches("bdi, pre, option, svg text, svg title");
        if (/[\\u202e\\u0590-\\u05ff]/.test(data) && !isAlone)
            found.push(parentElement.outerHTML);
    }
    found
"""


def test_a_waiting_job_says_why_and_shows_its_numbers_exactly(
    tab: Tab, conn: psycopg.Connection[object]
) -> None:
    job_id, _ = enqueue(conn, queue="unserved", payload={"invoice": BEYOND_DOUBLES, "empty": []})
    conn.execute(
        "UPDATE faultline.jobs SET payload = payload || %s::jsonb WHERE id = %s",
        [f'{{"share": {PRECISE}}}', job_id],
    )
    tab.go(f"jobs/{job_id}")
    tab.wait_for_data()
    payload = tab.find("pre[aria-label=Payload]")
    expect(payload).to_contain_text(f'"invoice": {BEYOND_DOUBLES}')
    expect(payload).to_contain_text(f'"share": {PRECISE}')
    expect(payload).to_contain_text('"empty": []')
    why = tab.page.get_by_role("region", name="Why this job waits")
    expect(why).to_contain_text("no live worker claims from queue unserved")
    expect(why).to_contain_text("Problem")
    expect(why).to_contain_text("faultline worker --app MODULE:NAME --queues unserved")

    conn.execute("SELECT faultline.register_worker('one', 'host', 7, ARRAY['unserved'], false)")
    expect(why).to_contain_text("next in line")
    [lease] = claim_batch(conn, 1, worker="one", queues=["unserved"])
    conn.execute("SELECT faultline.commit(%s, %s, %s, %s)", [*lease, Jsonb(BEYOND_DOUBLES)])
    expect(tab.find("pre[aria-label=Result]")).to_have_text(str(BEYOND_DOUBLES))


def test_a_jobs_tags_lead_to_the_list_of_jobs_with_that_tag(
    tab: Tab, conn: psycopg.Connection[object]
) -> None:
    enqueue(conn, task="untagged")
    conn.execute(
        "SELECT faultline.enqueue_jobs(%s)",
        [Jsonb([{"task": "tagged", "tags": ["a", "import:7"]}])],
    )
    tab.go("jobs?task=tagged")
    tab.page.get_by_role("link", name="tagged").click()
    facts = tab.page.locator("dl.facts")
    expect(facts).to_contain_text("a, import:7")
    facts.get_by_role("link", name="import:7").click()
    expect(tab.page.get_by_label("Tag")).to_have_value("import:7")
    rows = tab.page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("tagged")


@pytest.mark.slow
def test_an_error_keeps_its_lines_and_right_to_left_text_reorders_nothing(
    tab: Tab, conn: psycopg.Connection[object]
) -> None:
    job_id, _ = enqueue(
        conn, payload={RIGHT_TO_LEFT: RIGHT_TO_LEFT}, idempotency_key=f"key {RIGHT_TO_LEFT}"
    )
    [lease] = claim_batch(conn, 1, worker=f"worker {RIGHT_TO_LEFT}")
    conn.execute("SELECT faultline.fail(%s, %s, %s, %s, '0', 'fatal')", [*lease, TRACEBACK])
    conn.execute(
        "SELECT faultline.record_rejection(%s, 1, %s, 'token_mismatch')",
        [job_id, f"late {RIGHT_TO_LEFT}"],
    )
    conn.execute(
        "SELECT faultline.register_worker(%s, %s, 7, %s, false)",
        [f"w {RIGHT_TO_LEFT}", f"host {RIGHT_TO_LEFT}", ["default"]],
    )
    conn.execute("SELECT faultline.pause_queue('other', %s)", [f"reason {RIGHT_TO_LEFT}"])
    enqueue(conn)
    claim_batch(conn, 1, worker=f"w {RIGHT_TO_LEFT}")
    for route in ("overview", "leases", "workers", "queues", "rejections"):
        tab.go(route)
        tab.wait_for_data()
        expect(tab.find("main")).to_contain_text("\u202e")
        assert tab.page.evaluate(_NOT_ISOLATED) == [], route
    tab.go(f"jobs/{job_id}")
    tab.wait_for_data()
    expect(tab.find(".event-list")).to_contain_text("the attempt failed")
    assert tab.page.evaluate(_NOT_ISOLATED) == []
    # In JSON every string is isolated on its own: here a name and its value.
    payload = tab.find("pre[aria-label=Payload]")
    expect(payload.locator("bdi")).to_have_text([f'"{RIGHT_TO_LEFT}"'] * 2)
    error = tab.find("pre[aria-label='Last error']")
    expect(error).to_have_text(TRACEBACK, use_inner_text=True)
    expect(error).to_have_css("white-space-collapse", "preserve")
    event = tab.find("[data-kind=failed]")
    expect(event.locator("p")).to_have_text(
        f"worker {RIGHT_TO_LEFT} the attempt failed: ValueError: no"
    )
    event.get_by_text("Traceback", exact=True).click()
    expect(event.locator("pre")).to_contain_text(TRACEBACK, use_inner_text=True)


@pytest.mark.slow
def test_a_jobs_progress_is_a_bar_on_its_page_and_in_the_list(
    tab: Tab, conn: psycopg.Connection[object]
) -> None:
    job_id, _ = enqueue(conn)
    [lease] = claim_batch(conn, 1)
    report = "SELECT faultline.report_progress(ARRAY[%s], ARRAY[%s], ARRAY[%s], ARRAY[%s]::real[], ARRAY[%s])"
    conn.execute(report, [*lease, 0.4, f"4 of 10 {RIGHT_TO_LEFT}"])
    tab.go(f"jobs/{job_id}")
    tab.wait_for_data()
    bar = tab.page.get_by_role("progressbar", name="Progress: 40 %")
    expect(bar).to_be_visible()
    expect(tab.find(".progress-bar")).to_contain_text("4 of 10")
    assert tab.page.evaluate(_NOT_ISOLATED) == []
    conn.execute(report, [*lease, 0.9, None])
    expect(tab.page.get_by_role("progressbar", name="Progress: 90 %")).to_be_visible()
    tab.go("jobs")
    tab.wait_for_data()
    expect(tab.page.get_by_role("progressbar", name="Progress: 90 %")).to_be_visible()
