"""Messages that the documentation quotes are those that the code writes."""

from __future__ import annotations

import re

import pytest

from tests.tidy.pages import DOCS, ROOT

QUOTES = (
    ("deploying.md", "It is not shown again: "),
    ("failover.md", "is a standby, and only reads: waiting until it is promoted"),
    ("networks.md", r'"degraded","reason":"([^"]+)"'),
    ("running.md", r"to drain; it runs"),
    ("running.md", r"has stopped \("),
    ("running.md", r"is alive: "),
    ("running.md", r"slots are busy"),
    ("running.md", r"has not reported for"),
)


def source() -> str:
    """All Python of the queue, with the parts of a long literal joined."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", text)


@pytest.mark.parametrize(("page", "pattern"), QUOTES)
def test_a_quoted_message_is_in_the_code(page: str, pattern: str) -> None:
    found = [match[-1] or match[0] for match in _groups(pattern, (DOCS / page).read_text())]
    assert found, "the page does not quote it"
    code = source()
    assert [quote for quote in found if quote not in code] == []


def _groups(pattern: str, text: str) -> list[tuple[str, str]]:
    """The whole match and its first group, if it has one."""
    return [
        (match.group(), match.group(1) if match.re.groups else "")
        for match in re.finditer(pattern, text)
    ]
