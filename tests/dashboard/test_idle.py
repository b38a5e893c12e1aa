"""The dashboard of an empty queue."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .tab import Tab

EMPTY = {
    "overview": "The queue is empty",
    "leases": "No job is running",
    "workers": "No worker is registered",
    "queues": "There is no queue yet",
    "jobs": "No job has been enqueued",
    "rejections": "No write has been refused",
    "audit": "No action has been recorded",
    "reports": "faultline-queue[drills]",
    "jobs?state=failed": "No job matches",
    "jobs/01a1de8e-68df-7076-9a2d-c2b6a3a0ec12": "There is no job",
    "nowhere": "There is no page at this address",
}


def test_every_page_has_an_empty_state(idle_tab: Tab) -> None:
    tab = idle_tab
    tab.expects_failed_requests = True  # an unknown job is a 404
    for route, words in EMPTY.items():
        tab.page.goto(f"{tab.url}/#/{route}")
        expect(tab.find(".notice")).to_contain_text(words)
        expect(tab.find("h1")).to_have_count(1)
    tab.go("overview")
    expect(tab.find(".attention")).to_contain_text("No problems found")


@pytest.mark.slow
def test_the_theme_can_be_chosen_and_is_kept_after_a_reload(idle_tab: Tab) -> None:
    tab = idle_tab
    tab.go("overview")
    tab.wait_for_data()
    light = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    button = tab.page.get_by_role("button", name="Theme")
    button.click()
    expect(button).to_have_accessible_name("Theme: light. Press to change it.")
    button.click()
    expect(button).to_have_accessible_name("Theme: dark. Press to change it.")
    expect(tab.find("body")).not_to_have_css("background-color", light)
    tab.page.reload()
    tab.wait_for_data()
    expect(button).to_have_accessible_name("Theme: dark. Press to change it.")
    expect(tab.find("body")).not_to_have_css("background-color", light)


def test_the_content_policy_allows_no_inline_code_and_no_other_origin(idle_tab: Tab) -> None:
    answer = idle_tab.page.goto(idle_tab.url)
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    directives = dict(each.split(maxsplit=1) for each in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == "'self'"
    assert directives["connect-src"] == "'self'"
    assert "unsafe" not in policy
    assert "http" not in answer.text()  # every address in it is relative


def test_an_inspector_without_an_api_offers_no_actions(idle_tab: Tab) -> None:
    idle_tab.go("queues")
    idle_tab.wait_for_data()
    # The version and the permission for actions arrive in one response.
    expect(idle_tab.find(".sidebar-foot")).to_contain_text("Faultline")
    expect(idle_tab.page.get_by_role("button", name="Enter key")).to_have_count(0)
