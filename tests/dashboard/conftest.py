"""Fixtures: headless Chromium, an inspector, and tabs whose errors fail the test."""

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
DESKTOP = {"width": 1280, "height": 900}
TIMEOUT_MILLISECONDS = 40_000.0  # long, because the machine may be busy

OpenTab = Callable[..., Tab]


def find_chromium() -> str | None:
    """Return the program in `FAULTLINE_TEST_CHROMIUM`, else the first one installed."""
    named = os.environ.get("FAULTLINE_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def has_fonts() -> bool:
    """Tell whether fontconfig lists a font; false if fc-list is not installed."""
    program = shutil.which("fc-list")
    if program is None:
        return False
    listed = subprocess.run([program, ":", "family"], capture_output=True, check=False, timeout=60)
    return bool(listed.stdout.strip())


def require_text(browser: Browser) -> None:
    """Skip if the machine has no font: Chromium crashes at the first text it draws."""
    try:
        page = browser.new_page()
        page.goto("data:text/html,<p>text<input placeholder=text><button>text</button>")
        page.screenshot()  # returns once the text has been drawn
        page.close()
    except Error:
        if has_fonts():
            raise
        pytest.skip("Chromium needs a font to draw text: install one, such as fonts-dejavu-core")


# Not for the whole session: while Playwright is open its event loop runs in this thread, and asyncio.run in
# another package's test would fail.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: install one, or name it in FAULTLINE_TEST_CHROMIUM")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    expect.set_options(timeout=TIMEOUT_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if is_root else []
        )
        require_text(browser)
        yield browser
        browser.close()


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """The inspector's folder of reports, empty at first."""
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


@pytest.fixture
def processes(database_url: str) -> Iterator[ExitStack]:
    """Processes of a test; they end before its database is dropped."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def inspector(database_url: str, reports: Path, processes: ExitStack) -> Inspector:
    return processes.enter_context(serving(database_url, reports=reports))


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A proxy between the inspector and the test's database."""
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture
def open_tab(browser: Browser, processes: ExitStack) -> Iterator[OpenTab]:
    """Open a tab on an inspector; errors that the page logs fail the test."""
    with ExitStack() as opened:
        tabs: list[Tab] = []

        def open_one(url: str, *, viewport: dict[str, int] = DESKTOP, scheme: str = "light") -> Tab:
            context = browser.new_context(
                viewport=viewport, color_scheme=scheme, reduced_motion="reduce", locale="en-GB"
            )
            opened.callback(context.close)
            page: Page = context.new_page()
            page.set_default_timeout(TIMEOUT_MILLISECONDS)
            tabs.append(Tab(page, url))
            return tabs[-1]

        yield open_one
        for tab in tabs:
            assert tab.problems == []


@pytest.fixture(scope="package")
def idle_inspector(new_database: NewDatabase, template: str) -> Iterator[Inspector]:
    """One inspector on an empty database, shared by tests that only read."""
    with new_database(template) as url, serving(url, reports=Path(os.devnull)) as inspector:
        yield inspector


@pytest.fixture
def idle_tab(open_tab: OpenTab, idle_inspector: Inspector) -> Tab:
    return open_tab(idle_inspector.url)


@pytest.fixture
def tab(open_tab: OpenTab, inspector: Inspector) -> Tab:
    return open_tab(inspector.url)
