"""The Markdown pages of the repository, as the tidy tests read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REPORTS = DOCS / "reports"  # written by commands, from measurements
FOLDERS = (
    "benchmarks",
    "deploy",
    "docs",
    "drills",
    "examples",
    "k8s",
    "model",
    "monitoring",
    "src",
    "tests",
)

_FENCE = re.compile(r"^ *```.*?^ *``` *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ONE_LINK = re.compile(r"\s*(?:[-*] )?!?\[[^\]]*\]\([^)]*\)[.,;]?\s*")


def _blank(found: re.Match[str]) -> str:
    """Spaces in place of the match, so that lines and columns stay."""
    return re.sub(r"[^\n]", " ", found.group())


@dataclass(frozen=True)
class Page:
    path: Path

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def without_blocks(self) -> str:
        return _FENCE.sub(_blank, self.text)

    @cached_property
    def prose(self) -> str:
        """Without code: neither blocks nor spans."""
        return _CODE.sub(_blank, self.without_blocks)

    @cached_property
    def code_spans(self) -> list[str]:
        return [" ".join(span.strip("`").split()) for span in _CODE.findall(self.without_blocks)]

    @cached_property
    def links(self) -> list[str]:
        """Relative links, with their anchors."""
        return [link for link in _LINK.findall(self.prose) if not re.match(r"\w+:", link)]

    @cached_property
    def anchors(self) -> set[str]:
        """The places in this page that a link can name, spelled as code forges spell them."""
        headings = _HEADING.findall(self.without_blocks)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    @property
    def is_written_by_hand(self) -> bool:
        return not self.path.is_relative_to(REPORTS)

    def long_lines(self, limit: int) -> list[str]:
        """Long lines, except in tables and code blocks, and lines that are one link."""
        return [
            f"line {number}: {len(line)} characters"
            for number, line in enumerate(
                map(str.rstrip, self.without_blocks.splitlines()), start=1
            )
            if len(line) > limit
            and not line.lstrip().startswith("|")
            and not _ONE_LINK.fullmatch(line)
        ]


def _is_ours(path: Path) -> bool:
    inside = path.relative_to(ROOT).parts
    return not any(part.startswith(".") or part in ("node_modules", "vendor") for part in inside)


def pages() -> list[Page]:
    found = [
        *ROOT.glob("*.md"),
        *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md")),
    ]
    return [Page(path) for path in sorted(found) if _is_ours(path)]
