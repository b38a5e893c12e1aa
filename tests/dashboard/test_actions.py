"""Operators' actions need a key and a confirmation, and show their errors."""

from __future__ import annotations

import contextlib
import socket
from contextlib import ExitStack

import psycopg
import pytest
from playwright.sync_api import Locator, expect

from faultline.postgres.sessions import run
from faultline.statements import keys
from faultline.statements.keys import Scope
from faultline_drills.processes.observed_process import ObservedProcess
from tests.metrics.scraping import free_port
from tests.protocol.steps import enqueue, state, value
from tests.waiting import wait_until

from .conftest import OpenTab
from .serving import APP, start_inspector
from .tab import Tab

LONG = "a-queue-whose-name-is-as-long-as-a-name-of-a-queue-may-be-63-ch"


def is_listening(port: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
        return True
    return False


@pytest.fixture
def operator_tab(database_url: str, open_tab: OpenTab, processes: ExitStack) -> Tab:
    """A tab on an inspector with --api-url, so that actions are enabled."""
    port = str(free_port())
    # Without a cache, a revoked key is refused at the next request.
    options = ["--port", port, "--key-cache-seconds", "0"]
    api = ObservedProcess("api", app=APP, url=database_url, command="api", options=options)
    processes.callback(api.end)
    inspector = start_inspector(database_url, api_url=f"http://127.0.0.1:{port}")
    processes.callback(inspector.end)

    def api_runs() -> None:
        assert api.is_alive, api.recent_output()

    wait_until(lambda: is_listening(port), api.recent_output, check=api_runs)
    return open_tab(inspector.url)


def make_key(conn: psycopg.Connection[object], *scopes: Scope) -> str:
    key = keys.new_key()
    run(conn, keys.create("test", key, scopes))
    return key.text


def enter_key(tab: Tab, key: str) -> Locator:
    """Enter a key into the open dialog, and return the dialog."""
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Key").fill(key)
    dialog.get_by_role("button", name="Use this key").click()
    return dialog


def open_key_dialog_and_enter(tab: Tab, key: str) -> None:
    tab.page.get_by_role("button", name="Enter key", exact=True).click()
    expect(enter_key(tab, key)).to_have_count(0)


def press(tab: Tab, label: str, subject: str) -> Locator:
    """Press an action's button, and return the confirmation dialog."""
    tab.page.get_by_role("button", name=label, exact=True).click()
    dialog = tab.page.get_by_role("dialog", name=f"{label}: {subject}")
    expect(dialog).to_be_visible()
    return dialog


def press_and_confirm(tab: Tab, label: str, subject: str) -> None:
    dialog = press(tab, label, subject)
    dialog.get_by_role("button", name=label, exact=True).click()
    expect(dialog).to_have_count(0)


def test_an_operator_with_a_key_pauses_cancels_and_retries(
    operator_tab: Tab, conn: psycopg.Connection[object]
) -> None:
    tab = operator_tab
    # A proxy's login uses the Authorization header: the page's key must not replace it.
    tab.page.set_extra_http_headers({"Authorization": "Basic b3BzOnNlY3JldA=="})
    job_id, _ = enqueue(conn)
    tab.go("queues")
    tab.wait_for_data()
    expect(tab.page.get_by_role("button", name="Pause")).to_have_count(0)  # no key yet
    open_key_dialog_and_enter(tab, make_key(conn, Scope.OPERATE))

    press_and_confirm(tab, "Pause", "default")
    expect(tab.find("td[data-label=Status]")).to_have_text("paused")
    assert value(conn, "SELECT count(*) FROM faultline.paused_queues") == 1
    press_and_confirm(tab, "Resume", "default")
    expect(tab.find("td[data-label=Status]")).to_have_text("open")
    assert value(conn, "SELECT count(*) FROM faultline.paused_queues") == 0

    tab.page.evaluate(f"location.hash = '#/jobs/{job_id}'")  # a reload would lose the key
    press(tab, "Cancel job", "send_mail")
    tab.page.keyboard.press("Escape")
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
    assert state(conn, job_id) == "queued"  # closing the dialog changes nothing
    press_and_confirm(tab, "Cancel job", "send_mail")
    expect(tab.find(".job-title .badge")).to_have_text("failed")
    assert state(conn, job_id) == "failed"
    press_and_confirm(tab, "Retry job", "send_mail")
    expect(tab.find(".job-title .badge")).to_have_text("queued")
    assert state(conn, job_id) == "queued"

    tab.page.reload()
    tab.wait_for_data()
    expect(tab.page.get_by_role("button", name="Cancel job")).to_have_count(0)
    assert (
        tab.page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})").count("flk_") == 0
    )


@pytest.mark.slow
def test_a_key_is_checked_when_it_is_entered_and_a_refused_action_keeps_its_dialog_open(
    operator_tab: Tab, conn: psycopg.Connection[object]
) -> None:
    tab = operator_tab
    tab.expects_failed_requests = True  # the API refuses keys
    enqueue(conn, queue=LONG)
    tab.go("queues")
    tab.wait_for_data()
    tab.page.get_by_role("button", name="Enter key", exact=True).click()
    for key, words in (
        (keys.new_key().text, "not known, or was revoked"),
        (make_key(conn, Scope.READ), "has only the scope read"),
        ("flk_with a space", "no spaces"),
    ):
        dialog = enter_key(tab, key)
        expect(dialog.get_by_role("alert")).to_contain_text(words)
    revoked = make_key(conn, Scope.OPERATE)
    expect(enter_key(tab, revoked)).to_have_count(0)

    conn.execute("UPDATE faultline.api_keys SET revoked_at = now()")
    dialog = press(tab, "Pause", LONG)
    overflow = dialog.evaluate("(dialog) => dialog.scrollWidth - dialog.clientWidth")
    assert overflow == 0  # its text wraps
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was changed")
    expect(tab.page.get_by_role("button", name="Key refused")).to_be_attached()
    assert value(conn, "SELECT count(*) FROM faultline.paused_queues") == 0

    enter_key(tab, make_key(conn, Scope.OPERATE))  # in the same dialog
    expect(dialog.get_by_role("alert")).to_have_count(0)
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(tab.find("td[data-label=Status]")).to_have_text("paused")
    assert value(conn, "SELECT count(*) FROM faultline.paused_queues") == 1

    tab.go(f"audit?object=queue {LONG}")
    entries = tab.find("tbody tr")
    expect(entries).to_have_count(1)
    expect(entries.locator("[data-label=Who]")).to_contain_text("test")
    expect(entries.locator("[data-label=What]")).to_contain_text(f"queue {LONG}")
    expect(entries.locator("[data-label=From]")).to_have_text("127.0.0.1")
    expect(entries.locator(".badge")).to_have_text("done")
    tab.go("audit")
    tab.page.get_by_label("Result").select_option("refused")
    expect(entries.first).to_contain_text("unauthenticated")
    expect(entries.locator(".badge").first).to_have_text("refused")
