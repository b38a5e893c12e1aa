"""The race with a stale worker, run by real workers while the dashboard is open."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import expect

from faultline_drills.race import RaceSettings, run_race
from tests.protocol.steps import claim, claim_new, commit, expire, refused

from .conftest import PHONE
from .tab import Tab

# Fonts of very different widths, and the text spacing that WCAG 1.4.12 allows users to set.
FONTS = (
    {"--sans": "serif", "--mono": "serif"},
    {"--sans": "monospace", "--mono": "monospace"},
    {"--sans": "sans-serif", "letter-spacing": "0.12em", "word-spacing": "0.16em"},
    {"--sans": "monospace", "letter-spacing": "0.5em"},
)
# The texts that extend beyond the sides of the drawing by more than a pixel.
_OUTSIDE = """
    () => {
        const svg = document.querySelector(".timeline svg");
        const texts = [...svg.querySelectorAll("text")];
        const isOutside = (text) => {
            const { x, width } = text.getBBox();
            return x < -1 || x + width > svg.viewBox.baseVal.width + 1;
        };
        return { texts: texts.length, outside: texts.filter(isOutside).map((text) => text.textContent) };
    }
"""
_SET_FONTS = """
    (fonts) => {
        const { style } = document.documentElement;
        style.cssText = "";
        for (const [name, value] of Object.entries(fonts)) style.setProperty(name, value);
    }
"""


def test_the_race_appears_live_and_the_refused_commit_is_on_the_timeline(
    tab: Tab, database_url: str
) -> None:
    tab.go("overview")
    tab.wait_for_data()
    expect(tab.find(".toast")).to_have_count(0)
    expect(tab.page.get_by_text("No worker has tried to commit")).to_be_visible()

    race = run_race(database_url, RaceSettings())
    assert race.holds

    toast = tab.find(".toast")
    expect(toast).to_contain_text("PostgreSQL refused a stale commit")
    expect(toast).to_contain_text("token 1")
    expect(tab.find(".list li")).to_contain_text("race.charge")
    expect(tab.find(".nav-count")).to_contain_text("1")

    toast.get_by_role("link").click()
    expect(tab.find("h1")).to_have_text("race.charge")
    assert str(race.job_id) in tab.page.url
    expect(tab.find("[data-part=attempt]")).to_have_count(2)
    late, current = tab.find("[data-part=attempt]").all()
    expect(late).to_have_attribute("data-token", "1")
    expect(late).to_have_attribute("data-outcome", "expired")
    expect(late.locator("[data-part=late]")).to_have_count(1)
    expect(late.locator("[data-part=refused]")).to_contain_text("token mismatch")
    expect(late.locator("[data-part=committed]")).to_have_count(0)
    expect(current).to_have_attribute("data-token", "2")
    expect(current).to_have_attribute("data-outcome", "succeeded")
    expect(current).to_contain_text("took over, token 2")
    expect(current.locator("[data-part=committed]")).to_have_count(1)
    expect(current.locator("[data-part=refused]")).to_have_count(0)
    expect(tab.find("[data-part=takeover]")).to_have_count(1)
    expect(tab.find("[data-part=overlap]")).to_contain_text("two attempts at once for")
    expect(tab.find(".timeline-summary")).to_contain_text("PostgreSQL refused the stale commit")
    expect(tab.find(".timeline-summary")).to_contain_text("took effect once, with token 2")
    expect(tab.find(".event-list li")).to_have_count(6)
    kinds = [item.get_attribute("data-kind") for item in tab.find(".event-list li").all()]
    assert kinds == ["enqueued", "claimed", "expired", "taken_over", "committed", "refused"]

    tab.page.set_viewport_size(PHONE)
    expect(tab.find("[data-part=attempt]")).to_have_count(2)
    assert_all_texts_are_inside(tab)
    for fonts in FONTS:
        tab.page.evaluate("location.hash = '#/reports'")  # so that the timeline is drawn again
        expect(tab.find(".timeline")).to_have_count(0)
        tab.page.evaluate(_SET_FONTS, fonts)
        tab.page.evaluate(f"location.hash = '#/jobs/{race.job_id}'")
        expect(tab.find("[data-part=refused]")).to_have_count(1)
        expect(tab.find("[data-part=overlap]")).to_have_count(1)
        assert_all_texts_are_inside(tab)


def assert_all_texts_are_inside(tab: Tab) -> None:
    found = tab.page.evaluate(_OUTSIDE)
    assert found["texts"] > 5
    assert found["outside"] == []


@pytest.mark.slow
def test_an_attempt_appears_on_an_open_job_page_without_a_reload(
    tab: Tab, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        first = claim_new(conn, worker="first")
        tab.go(f"jobs/{first.job_id}")
        expect(tab.find("[data-part=attempt]")).to_have_count(1)
        expect(tab.find(".timeline-summary")).to_contain_text("running with token 1")

        expire(conn, first)
        second = claim(conn, worker="second")
        expect(tab.find("[data-part=attempt]")).to_have_count(2)
        expect(tab.find("[data-part=takeover]")).to_have_count(1)

        with refused("FL001", reason="token_mismatch"):
            commit(conn, first)
        conn.execute(
            "SELECT faultline.record_rejection(%s, %s, 'first', 'token_mismatch')", first[:2]
        )
        expect(tab.find("[data-token='1'] [data-part=refused]")).to_have_count(1)
        # The second attempt is still running.
        expect(tab.find("[data-part=overlap]")).to_have_count(1)
        expect(tab.find("[data-part=committed]")).to_have_count(0)

        commit(conn, second)
        expect(tab.find("[data-part=committed]")).to_have_count(1)
        expect(tab.find(".job-title .badge")).to_have_text("succeeded")
