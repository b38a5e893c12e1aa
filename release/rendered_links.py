"""Prints the relative links that a package index would show for a wheel.

It runs in an environment that has readme-renderer: python rendered_links.py WHEEL.
"""

from __future__ import annotations

import email
import sys
import zipfile
from html.parser import HTMLParser

from readme_renderer import markdown


class Links(HTMLParser):
    """Collects the targets of links and images."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if name in ("href", "src")]


def relative_links(wheel: str) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    body = metadata.get_payload(decode=True)
    page = markdown.render(body.decode()) if isinstance(body, bytes) else None
    if page is None:
        raise SystemExit("the description cannot be rendered")
    links = Links()
    links.feed(page)
    return [link for link in links.targets if not link.startswith(("https://", "#"))]


if __name__ == "__main__":
    print("\n".join(relative_links(sys.argv[1])))
