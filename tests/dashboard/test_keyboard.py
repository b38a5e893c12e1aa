"""The dashboard can be used with the keyboard alone."""

from __future__ import annotations

import psycopg
import pytest
from playwright.sync_api import expect

from tests.protocol.steps import enqueue

from .tab import Tab


@pytest.mark.slow
def test_the_keyboard_shortcuts_of_the_help_work(tab: Tab, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        job_id, _ = enqueue(conn)
    tab.go("overview")
    tab.wait_for_data()
    keyboard = tab.page.keyboard
    keyboard.press("?")
    expect(tab.page.get_by_role("dialog", name="Help")).to_be_visible()
    keyboard.press("Escape")
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
    keyboard.press("g")
    keyboard.press("w")
    expect(tab.find("h1")).to_have_text("Workers")
    expect(tab.find("h1")).to_be_focused()
    keyboard.press("/")
    expect(tab.page.get_by_role("searchbox")).to_be_focused()
    keyboard.type(str(job_id))
    keyboard.press("Enter")
    expect(tab.find("h1")).to_have_text("send_mail")
    expect(tab.page.get_by_text(str(job_id), exact=True)).to_be_visible()


@pytest.mark.slow
def test_the_first_tab_stop_skips_the_navigation(idle_tab: Tab) -> None:
    tab = idle_tab
    tab.go("queues")
    tab.wait_for_data()
    tab.page.keyboard.press("Tab")
    expect(tab.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    tab.page.keyboard.press("Enter")
    expect(tab.find("main")).to_be_focused()
    expect(tab.find("h1")).to_have_text("Queues")  # the page has not changed


@pytest.mark.slow
def test_the_focused_element_has_a_visible_outline(idle_tab: Tab) -> None:
    tab = idle_tab
    tab.go("queues")
    tab.wait_for_data()
    for _ in range(12):
        tab.page.keyboard.press("Tab")
        outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", tab.page.evaluate("document.activeElement.outerHTML")
