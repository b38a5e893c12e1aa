"""The dashboard under a prefix of another application, whose users need no key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import Cookie, FastAPI, HTTPException
from playwright.sync_api import expect

from faultline import Faultline
from faultline.adapters.fastapi import Caller, dashboard, mounted_lifespan
from tests.protocol.steps import enqueue, state, value

from .conftest import OpenTab
from .serving import serving_application
from .tab import PAGES, Tab


def caller(user: Annotated[str | None, Cookie()] = None) -> Caller:
    if user is None:
        raise HTTPException(401, "log in first")
    return Caller(user, {"read", "operate"} if user == "ada" else {"read"})


@pytest.fixture
def host_url(database_url: str, processes: ExitStack) -> Iterator[str]:
    queue = Faultline(database_url)
    host = FastAPI(lifespan=mounted_lifespan())
    host.mount("/admin/faultline", dashboard(queue, access=caller))
    yield processes.enter_context(serving_application(host)).url
    queue.close()


def sign_in(open_tab: OpenTab, host_url: str, user: str) -> Tab:
    tab = open_tab(f"{host_url}/admin/faultline")
    tab.page.context.add_cookies([{"name": "user", "value": user, "url": host_url}])
    return tab


@pytest.mark.parametrize("page", PAGES)
def test_every_page_works_under_the_prefix(open_tab: OpenTab, host_url: str, page: str) -> None:
    tab = sign_in(open_tab, host_url, "ada")
    outside: list[str] = []
    prefix = f"{host_url}/admin/faultline"
    tab.page.on(
        "request",
        lambda sent: None if sent.url.startswith((prefix, "data:")) else outside.append(sent.url),
    )
    tab.go(page)
    tab.wait_for_data()
    assert outside == []


@pytest.mark.slow
def test_a_change_in_the_database_reaches_the_page(
    open_tab: OpenTab, host_url: str, conn: psycopg.Connection[Any]
) -> None:
    tab = sign_in(open_tab, host_url, "bob")
    tab.go("queues")
    tab.wait_for_data()
    enqueue(conn, queue="mail")
    expect(tab.page.get_by_role("link", name="mail", exact=True)).to_be_visible()


def test_a_user_of_the_host_cancels_a_job_without_a_key(
    open_tab: OpenTab, host_url: str, conn: psycopg.Connection[Any]
) -> None:
    job_id, _ = enqueue(conn)
    tab = sign_in(open_tab, host_url, "ada")
    tab.go(f"jobs/{job_id}")
    expect(tab.page.get_by_role("button", name="Enter key")).to_have_count(0)
    tab.page.get_by_role("button", name="Cancel job").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel job").click()
    expect(dialog).to_have_count(0)
    assert state(conn, job_id) == "failed"
    assert value(conn, "SELECT actor FROM faultline.audit_log") == "ada"


@pytest.mark.slow
def test_a_user_who_may_only_read_sees_no_actions(
    open_tab: OpenTab, host_url: str, conn: psycopg.Connection[Any]
) -> None:
    job_id, _ = enqueue(conn)
    tab = sign_in(open_tab, host_url, "bob")
    tab.go(f"jobs/{job_id}")
    tab.wait_for_data()
    expect(tab.page.get_by_role("button", name="Enter key")).to_have_count(0)
    expect(tab.page.get_by_role("button", name="Cancel job")).to_have_count(0)


@pytest.mark.slow
def test_an_action_after_the_session_has_ended_shows_the_hosts_refusal(
    open_tab: OpenTab, host_url: str, conn: psycopg.Connection[Any]
) -> None:
    job_id, _ = enqueue(conn)
    tab = sign_in(open_tab, host_url, "ada")
    tab.go(f"jobs/{job_id}")
    tab.expects_failed_requests = True
    tab.page.get_by_role("button", name="Cancel job").click()
    tab.page.context.clear_cookies()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel job").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was changed")
    expect(dialog.get_by_label("API key")).to_have_count(0)
    assert state(conn, job_id) == "queued"
