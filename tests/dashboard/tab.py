"""One open dashboard, in the words of these tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

PAGES = ("overview", "leases", "workers", "queues", "jobs", "rejections", "audit", "reports")

# Seen by no content policy: Playwright puts it in before the page's own scripts.
_LISTEN = """
    window.violations = [];
    addEventListener("securitypolicyviolation",
        (event) => violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
"""


class Tab:
    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self._complaints: list[str] = []
        self.expects_failed_requests = False
        page.add_init_script(_LISTEN)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self._complaints.append(f"uncaught: {error}"))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(f"{message.type}: {message.text}")

    @property
    def complaints(self) -> Sequence[str]:
        """Errors, warnings and breaches of the content policy; failed requests only where none may fail."""
        violations = [] if self.page.is_closed() else self.page.evaluate("window.violations ?? []")
        said = [*self._complaints, *violations]
        if self.expects_failed_requests:
            said = [
                each
                for each in said
                if "Failed to load resource" not in each and "net::ERR" not in each
            ]
        return said

    def go(self, route: str) -> None:
        """`route` is what stands behind the #."""
        self.page.goto(f"{self.url}/#/{route}")
        expect(self.page.locator("h1")).to_be_visible()

    def settle(self) -> None:
        """Until what the page shows is data, or says that there is none."""
        expect(self.page.locator(".link-state")).to_have_attribute("data-link", "open")
        expect(self.page.locator(".skeleton")).to_have_count(0)

    def find(self, selector: str, **options: Any) -> Locator:
        return self.page.locator(selector, **options)

    def sideways_overflow(self) -> int:
        """How many pixels the page is wider than the window."""
        return int(
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )
