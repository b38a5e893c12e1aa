"""A browser tab with the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

PAGES = (
    "overview",
    "leases",
    "workers",
    "queues",
    "limits",
    "schedules",
    "jobs",
    "rejections",
    "audit",
    "reports",
)

# The content policy does not apply to it: Playwright runs it before the page's own scripts.
_RECORD_VIOLATIONS = """
    window.violations = [];
    addEventListener("securitypolicyviolation",
        (event) => violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
"""


class Tab:
    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self._problems: list[str] = []
        self.expects_failed_requests = False
        page.add_init_script(_RECORD_VIOLATIONS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._problems.append(f"uncaught: {error}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._problems.append(f"{message.type}: {message.text}")

    @property
    def problems(self) -> Sequence[str]:
        """Errors, warnings and violations of the content policy that the page logged.

        Failed requests are left out if `expects_failed_requests` is set.
        """
        violations = [] if self.page.is_closed() else self.page.evaluate("window.violations ?? []")
        logged = [*self._problems, *violations]
        if self.expects_failed_requests:
            logged = [
                each
                for each in logged
                if "Failed to load resource" not in each and "net::ERR" not in each
            ]
        return logged

    def go(self, route: str) -> None:
        """Open a page; `route` is the URL's part after #/."""
        self.page.goto(f"{self.url}/#/{route}")
        expect(self.page.locator("h1")).to_be_visible()

    def wait_for_data(self) -> None:
        """Wait until the page shows data, or says that there is none."""
        expect(self.page.locator(".connection-state")).to_have_attribute("data-connection", "open")
        expect(self.page.locator(".skeleton")).to_have_count(0)

    def find(self, selector: str, **options: Any) -> Locator:
        return self.page.locator(selector, **options)

    def sideways_overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )
