"""Lists keep their order while they are read; searches fill a page."""

from __future__ import annotations

import contextlib
import json
from urllib.parse import parse_qs, urlencode, urlsplit

import psycopg
import pytest
from playwright.sync_api import Error, Route, expect

from tests.protocol.steps import enqueue

from .tab import Tab

FOUND = 4


@pytest.mark.slow
def test_a_list_keeps_its_order_under_the_pointer(
    tab: Tab, conn: psycopg.Connection[object]
) -> None:
    enqueue(conn, task="first")
    tab.go("jobs")
    tab.wait_for_data()
    rows = tab.find("tbody tr")
    expect(rows).to_have_count(1)
    rows.first.hover()
    enqueue(conn, task="second")
    update = tab.page.get_by_role("button", name="Show 1 new")
    expect(update).to_be_visible()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("first")
    update.click()
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("second")
    expect(update).to_have_count(0)

    tab.find("h1").hover()
    enqueue(conn, task="third")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("third")


@pytest.mark.slow
def test_a_search_continues_until_a_page_is_full(
    tab: Tab, conn: psycopg.Connection[object]
) -> None:
    for _ in range(FOUND):
        enqueue(conn, task="rare")
    enqueue(conn, task="frequent")

    def search_one_job_at_a_time(route: Route) -> None:
        """Return the inspector's responses, cut off as after a search that takes too long."""
        parts = urlsplit(route.request.url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        url = parts._replace(query=urlencode({**query, "limit": "1"})).geturl()
        with contextlib.suppress(Error):  # the page may be closed meanwhile
            page = route.fetch(url=url).json()
            if page["next"]:
                page["searched_until"] = page["jobs"][-1]["created_at"]
            route.fulfill(status=200, content_type="application/json", body=json.dumps(page))

    tab.page.route("**/api/jobs?*", search_one_job_at_a_time)
    tab.go("jobs?task=rare")
    expect(tab.find("tbody tr")).to_have_count(FOUND)
    expect(tab.find(".progress")).to_have_count(0)  # the search is complete
    tab.page.unroute_all(behavior="ignoreErrors")  # a live list is fetched repeatedly
