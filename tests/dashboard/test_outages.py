"""The database or the inspector goes away, or has no stream left, while the dashboard is open."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg
from playwright.sync_api import expect

from faultline_drills.proxy import Proxy
from tests.metrics.scraping import free_port
from tests.protocol.steps import enqueue

from .conftest import OpenTab
from .serving import start_inspector


def test_a_database_that_goes_away_and_comes_back_is_shown(
    open_tab: OpenTab, proxy: Proxy, ended_last: ExitStack, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn)
    inspector = start_inspector(proxy.url)
    ended_last.callback(inspector.end)
    tab = open_tab(inspector.url)
    tab.go("queues")
    tab.settle()
    expect(tab.find("td[data-label=Due]")).to_have_text("1")
    expect(tab.find("body")).to_contain_text("PostgreSQL: ")  # the stream has told something, too
    tab.expects_failed_requests = True

    proxy.refuse_connections()
    proxy.reset_all()
    banner = tab.find(".banner[data-trouble=database]")
    expect(banner).to_contain_text("The database is away")
    expect(banner).to_contain_text("What you see is from")
    expect(tab.find(".page")).to_have_attribute("data-old", "")
    expect(tab.find("td[data-label=Due]")).to_have_text("1")  # what was last seen stays

    enqueue(conn)
    proxy.flow()
    expect(banner).to_have_count(0)
    expect(tab.find("td[data-label=Due]")).to_have_text("2")
    expect(tab.find(".page[data-old]")).to_have_count(0)


def test_an_inspector_that_is_started_again_is_found_again(
    open_tab: OpenTab, ended_last: ExitStack, database_url: str
) -> None:
    port = str(free_port())  # which nobody else gets in between
    inspector = start_inspector(database_url, port=port)
    ended_last.callback(inspector.end)
    tab = open_tab(inspector.url)
    tab.go("workers")
    tab.settle()
    tab.expects_failed_requests = True
    inspector.end()
    expect(tab.find(".banner[data-trouble=inspector]")).to_be_visible()
    successor = start_inspector(database_url, port=port)
    ended_last.callback(successor.end)
    expect(tab.find(".banner[data-trouble]")).to_have_count(0)
    tab.settle()


def test_a_dashboard_beyond_the_stream_cap_says_so_and_polls(
    open_tab: OpenTab, ended_last: ExitStack, conn: psycopg.Connection[Any], database_url: str
) -> None:
    inspector = start_inspector(database_url, max_streams=1)
    ended_last.callback(inspector.end)
    first = open_tab(inspector.url)
    first.go("overview")
    first.settle()
    second = open_tab(inspector.url)
    second.expects_failed_requests = True
    second.go("overview")
    banner = second.find(".banner[data-trouble=streams]")
    expect(banner).to_contain_text("1 dashboards are open")
    expect(banner).to_contain_text("asks every 5 seconds instead")
    expect(second.find(".banner[data-trouble=inspector]")).to_have_count(0)
    enqueue(conn, queue="unserved")
    expect(second.find(".attention")).to_contain_text("No live worker serves the queue unserved")

    first.page.goto("about:blank")
    expect(second.find(".link-state")).to_have_attribute("data-link", "open")
    expect(banner).to_have_count(0)
