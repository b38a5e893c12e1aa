"""A headless Chromium, an inspector for each test's database, and pages that must not complain."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from faultline_drills.proxy import Proxy, proxy_to
from tests.conftest import NewDatabase

from .serving import Inspector, serving
from .tab import Tab

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}
BOUND_MILLISECONDS = 40_000.0  # for what comes at once as a rule: a machine may be busy

OpenTab = Callable[..., Tab]


def find_chromium() -> str | None:
    """The one that `FAULTLINE_TEST_CHROMIUM` names, else the first that is installed."""
    named = os.environ.get("FAULTLINE_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def has_fonts() -> bool:
    """Whether fontconfig knows a font; false where it cannot be asked."""
    program = shutil.which("fc-list")
    if program is None:
        return False
    listed = subprocess.run([program, ":", "family"], capture_output=True, check=False, timeout=60)
    return bool(listed.stdout.strip())


def require_text(browser: Browser) -> None:
    """Skip where Chromium ends at the first text of a page because the machine has no font at all."""
    try:
        page = browser.new_page()
        page.goto("data:text/html,<p>text<input placeholder=text><button>text</button>")
        page.screenshot()  # returns once the text has been drawn
        page.close()
    except Error:
        if has_fonts():
            raise
        pytest.skip("Chromium needs a font to draw text: install one, such as fonts-dejavu-core")


# Not for the session: while it is open, its event loop is the one of this thread, and another test's
# asyncio.run would be refused.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: install one, or name it in FAULTLINE_TEST_CHROMIUM")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    expect.set_options(timeout=BOUND_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if is_root else []
        )
        require_text(browser)
        yield browser
        browser.close()


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Where the test's inspector looks for reports; empty at first."""
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


@pytest.fixture
def ended_last(database_url: str) -> Iterator[ExitStack]:
    """For the processes of a test: pages are closed before them, and their database goes after them."""
    with ExitStack() as processes:
        yield processes


@pytest.fixture
def inspector(database_url: str, reports: Path, ended_last: ExitStack) -> Inspector:
    return ended_last.enter_context(serving(database_url, reports=reports))


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """Between an inspector and the test's database."""
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture
def open_tab(browser: Browser, ended_last: ExitStack) -> Iterator[OpenTab]:
    """Opens a page of an inspector. Whatever the page complained of fails the test when it ends."""
    with ExitStack() as opened:
        tabs: list[Tab] = []

        def open_one(url: str, *, viewport: dict[str, int] = DESK, scheme: str = "light") -> Tab:
            context = browser.new_context(
                viewport=viewport, color_scheme=scheme, reduced_motion="reduce", locale="en-GB"
            )
            opened.callback(context.close)
            page: Page = context.new_page()
            page.set_default_timeout(BOUND_MILLISECONDS)
            tabs.append(Tab(page, url))
            return tabs[-1]

        yield open_one
        for tab in tabs:
            assert tab.complaints == []


@pytest.fixture(scope="package")
def idle_inspector(new_database: NewDatabase, template: str) -> Iterator[Inspector]:
    """For tests that only look: one, on a database with nothing in it."""
    with new_database(template) as url, serving(url, reports=Path(os.devnull)) as inspector:
        yield inspector


@pytest.fixture
def idle_tab(open_tab: OpenTab, idle_inspector: Inspector) -> Tab:
    return open_tab(idle_inspector.url)


@pytest.fixture
def tab(open_tab: OpenTab, inspector: Inspector) -> Tab:
    return open_tab(inspector.url)
