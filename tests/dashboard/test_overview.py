"""The overview shows problems first, on a phone too."""

from __future__ import annotations

import psycopg
from playwright.sync_api import expect

from tests.protocol.steps import claim_batch, enqueue

from .conftest import PHONE, OpenTab
from .serving import Inspector

# Links that differ from the text around them by colour alone, or whose contrast is below WCAG AA.
_WEAK_LINKS = """
    const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const luminance = (rgb) => rgb.slice(0, 3).map((each) => each / 255)
        .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
        .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
    const ground = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const rgb = parse(getComputedStyle(each).backgroundColor);
            if (rgb.length === 3 || rgb[3] === 1) return rgb;
        }
        return [255, 255, 255];
    };
    const links = [...document.querySelectorAll("main a")];
    const weak = links.filter((link) => {
        const style = getComputedStyle(link);
        const [low, high] = [parse(style.color), ground(link)].map(luminance).sort((a, b) => a - b);
        const beside = [...link.parentElement.childNodes].filter(({ nodeType }) => nodeType === 3);
        const inText = beside.some(({ data }) => data.trim());
        const isLined = style.textDecorationLine.includes("underline");
        return (high + 0.05) / (low + 0.05) < 4.5 || (inText && !isLined);
    });
    ({ found: links.length, weak: weak.map((link) => link.outerHTML) })
"""
# The number of drawn pixels in the first two columns of each chart: a label that is cut off reaches them.
_CUT_LABELS = """
    [...document.querySelectorAll(".chart canvas")].map((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, 2, canvas.height);
        return data.filter((_, index) => index % 4 === 3).reduce((sum, alpha) => sum + (alpha > 0), 0);
    })
"""


def test_the_overview_shows_problems_first(
    open_tab: OpenTab, inspector: Inspector, conn: psycopg.Connection[object]
) -> None:
    enqueue(conn, queue="unserved")
    conn.execute("UPDATE faultline.jobs SET next_run_at = now() - interval '11 minutes'")
    for _ in range(3):
        enqueue(conn, task="shop.charge", queue="billing")
        [lease] = claim_batch(conn, 1, queues=["billing"])
        conn.execute("SELECT faultline.fail(%s, %s, %s, 'ValueError: no', '0', 'fatal')", [*lease])
    conn.execute("SELECT faultline.register_worker('gone', 'host', 7, ARRAY['billing'], false)")
    conn.execute("UPDATE faultline.workers SET last_heartbeat_at = now() - interval '1 hour'")
    tab = open_tab(inspector.url, viewport=PHONE)
    tab.go("overview")
    tab.wait_for_data()
    attention = tab.page.get_by_role("region", name="What needs attention")
    unserved, failed, gone = (attention.get_by_role("listitem").nth(place) for place in range(3))
    expect(unserved).to_contain_text("Problem")
    expect(unserved).to_contain_text("No live worker serves the queue unserved: 1 job is due")
    expect(unserved).to_contain_text("11 min")
    expect(failed).to_contain_text("Problem")
    expect(failed).to_contain_text("3 jobs of the task shop.charge failed with ValueError")
    expect(gone).to_contain_text("Warning")
    expect(gone).to_contain_text("The worker gone on host is silent")
    first_chart = tab.find(".chart").first.bounding_box()
    box = attention.bounding_box()
    assert first_chart is not None
    assert box is not None
    assert box["y"] + box["height"] < first_chart["y"]
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        links = tab.page.evaluate(_WEAK_LINKS)
        assert links["found"] > 5
        assert links["weak"] == []
    assert tab.page.evaluate(_CUT_LABELS) == [0, 0, 0, 0]
    failed.get_by_role("link", name="shop.charge").click()
    expect(tab.find("tbody tr")).to_have_count(3)
    assert "state=failed" in tab.page.url
