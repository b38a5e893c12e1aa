"""Rules for Markdown: short lines, plain words, working links, an index."""

from __future__ import annotations

import re

import pytest

from tests.tidy.pages import DOCS, REPORTS, ROOT, Page, pages
from tests.tidy.words import banned_words

MAX_LINE = 120
PAGES = pages()
WRITTEN = [page for page in PAGES if page.is_written_by_hand]
# A decision or a failure mode is one entry of a list, whose README says for whom the list is.
GUIDES = [
    page
    for page in WRITTEN
    if page.path.is_relative_to(DOCS) and not re.match(r"00\d\d-|FM_\d", page.path.name)
]
_INSTALLS_ANOTHER_PROJECT = re.compile(r"pip install ['\"]?faultline(?![\w-])")
_PATH = re.compile(
    r"(?:benchmarks|deploy|docs|drills|examples|k8s|model|monitoring|src|tests)/[\w./-]*[\w/]"
)


def test_the_pages_are_found() -> None:
    names = {str(page) for page in PAGES}
    assert {"README.md", "docs/README.md", "docs/drills/README.md", "benchmarks/README.md"} <= names


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_a_line_has_at_most_120_characters(page: Page) -> None:
    assert page.long_lines(MAX_LINE) == []


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_a_page_uses_plain_words(page: Page) -> None:
    assert [str(found) for found in banned_words(page.prose)] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_relative_link_resolves(page: Page) -> None:
    by_path = {other.path: other for other in PAGES}
    for link in page.links:
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        assert target.exists(), link
        if anchor and target in by_path:
            assert anchor in by_path[target].anchors, link


def test_every_page_of_the_documentation_is_reachable_from_its_index() -> None:
    by_path = {page.path: page for page in PAGES}
    seen = {DOCS / "README.md"}
    waiting = list(seen)
    while waiting:
        page = by_path[waiting.pop()]
        targets = {(page.path.parent / link.partition("#")[0]).resolve() for link in page.links}
        new = {target for target in targets if target in by_path} - seen
        seen |= new
        waiting += new
    lost = [str(page) for page in PAGES if page.path.is_relative_to(DOCS) and page.path not in seen]
    assert lost == []


@pytest.mark.parametrize("page", GUIDES, ids=str)
def test_a_page_says_first_for_whom_it_is(page: Page) -> None:
    title, _, first, *_ = page.text.splitlines()
    assert title.startswith("# ")
    assert first.startswith("For "), first


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_a_file_that_a_page_names_exists(page: Page) -> None:
    named = [span for span in page.code_spans if _PATH.fullmatch(span)]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_a_test_that_a_page_names_exists(page: Page) -> None:
    named = [span for span in page.code_spans if re.fullmatch(r"test_\w+", span)]
    if named:
        source = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
        assert [name for name in named if f"def {name}(" not in source] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_page_installs_another_project_of_the_same_name(page: Page) -> None:
    assert _INSTALLS_ANOTHER_PROJECT.findall(page.text) == []


def test_reports_are_written_by_commands() -> None:
    """Each names the command that wrote it, so that it can be written again."""
    reports = [page for page in PAGES if page.path.is_relative_to(REPORTS)]
    assert reports
    for page in reports:
        assert re.search(r"made by: `|^python -m benchmarks", page.text, re.MULTILINE), str(page)
