"""What an operator may do: with a key, after a question, through the API."""

from __future__ import annotations

import contextlib
import socket
import time
from contextlib import ExitStack

import psycopg
import pytest
from playwright.sync_api import expect

from faultline import keys
from faultline.database import run
from faultline.drills.witness import Witness
from faultline.keys import Scope
from tests.metrics.scraping import free_port
from tests.protocol.steps import claim_new, enqueue, state, value

from .conftest import OpenTab
from .serving import APP, BOUND_SECONDS, start_inspector
from .tab import Tab


def is_listening(port: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
        return True
    return False


@pytest.fixture
def operated(database_url: str, open_tab: OpenTab, ended_last: ExitStack) -> Tab:
    """A dashboard whose inspector knows the API."""
    port = str(free_port())
    api = Witness("api", app=APP, url=database_url, command="api", options=["--port", port])
    ended_last.callback(api.end)
    inspector = start_inspector(database_url, api_url=f"http://127.0.0.1:{port}")
    ended_last.callback(inspector.end)
    deadline = time.monotonic() + BOUND_SECONDS
    while not is_listening(port):
        assert api.is_alive, api.last_words()
        assert time.monotonic() < deadline, api.last_words()
        time.sleep(0.02)
    return open_tab(inspector.url)


def make_key(conn: psycopg.Connection[object], *scopes: Scope) -> str:
    key = keys.new_key()
    run(conn, keys.create("test", key, scopes))
    return key.text


def give_key(tab: Tab, key: str) -> None:
    tab.page.get_by_role("button", name="Operate", exact=True).click()
    dialog = tab.page.get_by_role("dialog", name="Operator key")
    dialog.get_by_label("Key").fill(key)
    dialog.get_by_role("button", name="Use this key").click()
    expect(dialog).to_have_count(0)


def press_and_confirm(tab: Tab, label: str) -> None:
    tab.page.get_by_role("button", name=label, exact=True).click()
    dialog = tab.page.get_by_role("dialog", name=f"{label}?")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name=label, exact=True).click()


def test_an_operator_with_a_key_pauses_cancels_and_retries(
    operated: Tab, conn: psycopg.Connection[object]
) -> None:
    tab = operated
    job_id, _ = enqueue(conn)
    tab.go("queues")
    tab.settle()
    expect(tab.page.get_by_role("button", name="Pause")).to_have_count(0)  # not without a key
    give_key(tab, make_key(conn, Scope.OPERATE))

    press_and_confirm(tab, "Pause")
    expect(tab.find("td[data-label=Status]")).to_have_text("paused")
    assert value(conn, "SELECT count(*) FROM faultline.paused_queues") == 1
    press_and_confirm(tab, "Resume")
    expect(tab.find("td[data-label=Status]")).to_have_text("open")
    assert value(conn, "SELECT count(*) FROM faultline.paused_queues") == 0

    tab.page.evaluate(f"location.hash = '#/jobs/{job_id}'")  # a reload would forget the key
    press_and_confirm(tab, "Cancel job")
    expect(tab.find(".job-title .badge")).to_have_text("failed")
    assert state(conn, job_id) == "failed"
    press_and_confirm(tab, "Retry job")
    expect(tab.find(".job-title .badge")).to_have_text("queued")
    assert state(conn, job_id) == "queued"

    tab.page.reload()
    tab.settle()
    expect(tab.page.get_by_role("button", name="Cancel job")).to_have_count(0)
    assert (
        tab.page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})").count("flk_") == 0
    )


def test_leaving_the_question_alone_does_nothing(
    operated: Tab, conn: psycopg.Connection[object]
) -> None:
    job = claim_new(conn)
    operated.go(f"jobs/{job.job_id}")
    operated.settle()
    give_key(operated, make_key(conn, Scope.OPERATE))
    operated.page.get_by_role("button", name="Cancel job", exact=True).click()
    expect(operated.page.get_by_role("dialog", name="Cancel job?")).to_be_visible()
    operated.page.keyboard.press("Escape")
    expect(operated.page.get_by_role("dialog")).to_have_count(0)
    assert state(conn, job.job_id) == "running"


def test_a_key_that_may_not_operate_is_told_so(
    operated: Tab, conn: psycopg.Connection[object]
) -> None:
    operated.expects_failed_requests = True  # a refusal is one
    enqueue(conn)
    operated.go("queues")
    operated.settle()
    give_key(operated, make_key(conn, Scope.READ))
    press_and_confirm(operated, "Pause")
    expect(operated.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("operate")
    assert value(conn, "SELECT count(*) FROM faultline.paused_queues") == 0
