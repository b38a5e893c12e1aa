"""The dashboard during outages of the database, the inspector and its streams."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from playwright.sync_api import expect

from faultline_drills.proxy import Proxy
from tests.metrics.scraping import free_port
from tests.protocol.steps import enqueue

from .conftest import OpenTab
from .serving import start_inspector


@pytest.mark.slow
def test_a_database_outage_and_its_end_are_shown(
    open_tab: OpenTab, proxy: Proxy, processes: ExitStack, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn)
    inspector = start_inspector(proxy.url)
    processes.callback(inspector.end)
    tab = open_tab(inspector.url)
    tab.go("queues")
    tab.wait_for_data()
    expect(tab.find("td[data-label=Due]")).to_have_text("1")
    # An event of the stream has arrived too.
    expect(tab.find("body")).to_contain_text("PostgreSQL: ")
    tab.expects_failed_requests = True

    proxy.refuse_connections()
    proxy.reset_all()
    banner = tab.find(".banner[data-outage=database]")
    expect(banner).to_contain_text("The database is unreachable")
    expect(banner).to_contain_text("This page shows data from")
    expect(tab.find(".page")).to_have_attribute("data-outdated", "")
    expect(tab.find("td[data-label=Due]")).to_have_text("1")  # the last data stays

    enqueue(conn)
    proxy.clear_faults()
    expect(banner).to_have_count(0)
    expect(tab.find("td[data-label=Due]")).to_have_text("2")
    expect(tab.find(".page[data-outdated]")).to_have_count(0)


@pytest.mark.slow
def test_the_dashboard_reconnects_to_a_restarted_inspector(
    open_tab: OpenTab, processes: ExitStack, database_url: str
) -> None:
    port = str(free_port())  # stays free until the second inspector starts
    inspector = start_inspector(database_url, port=port)
    processes.callback(inspector.end)
    tab = open_tab(inspector.url)
    tab.go("workers")
    tab.wait_for_data()
    tab.expects_failed_requests = True
    inspector.end()
    expect(tab.find(".banner[data-outage=inspector]")).to_be_visible()
    successor = start_inspector(database_url, port=port)
    processes.callback(successor.end)
    expect(tab.find(".banner[data-outage]")).to_have_count(0)
    tab.wait_for_data()


@pytest.mark.slow
def test_a_dashboard_beyond_the_stream_cap_says_so_and_polls(
    open_tab: OpenTab, processes: ExitStack, conn: psycopg.Connection[Any], database_url: str
) -> None:
    inspector = start_inspector(database_url, max_streams=1)
    processes.callback(inspector.end)
    first = open_tab(inspector.url)
    first.go("overview")
    first.wait_for_data()
    second = open_tab(inspector.url)
    second.expects_failed_requests = True
    second.go("overview")
    banner = second.find(".banner[data-outage=streams]")
    expect(banner).to_contain_text("1 dashboards are open")
    expect(banner).to_contain_text("polls every 5 seconds instead")
    expect(second.find(".banner[data-outage=inspector]")).to_have_count(0)
    enqueue(conn, queue="unserved")
    expect(second.find(".attention")).to_contain_text("No live worker serves the queue unserved")

    first.page.goto("about:blank")
    expect(second.find(".connection-state")).to_have_attribute("data-connection", "open")
    expect(banner).to_have_count(0)
