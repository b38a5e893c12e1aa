"""Docstrings and comments use plain words, and first lines are short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.pages import ROOT
from tests.tidy.python_prose import comments, docstrings
from tests.tidy.words import banned_words

MAX_FIRST_LINE = 80
FOLDERS = (
    *("src", "drills/src", "tests", "benchmarks", "monitoring", "release"),
    *("docs", "examples", "k8s", "model"),
)
NAMES_THE_WORDS = ("words.py", "test_words.py")


def files_of(folder: str) -> Iterator[Path]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        # benchmarks/.environments has the installed peers.
        if path.name not in NAMES_THE_WORDS and ".environments" not in path.parts:
            yield path


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_use_plain_words(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{prose.line + finding.line - 1}: {finding.word!r};"
        f" instead: {finding.instead}"
        for path in files_of(folder)
        for prose in (*docstrings(path), *comments(path))
        for finding in banned_words(prose.text)
    ]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_first_line_of_a_docstring_is_short(folder: str) -> None:
    first_lines = [
        (f"{path.relative_to(ROOT)}:{prose.line}", prose.text.splitlines()[0])
        for path in files_of(folder)
        for prose in docstrings(path)
    ]
    assert [(at, text) for at, text in first_lines if len(text) > MAX_FIRST_LINE] == []


def test_prose_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text('"""Purpose."""\nvalue = 1  # one\n# two lines\n# of comment\n\n\n# another\n')
    assert [tuple(prose) for prose in docstrings(path)] == [(1, "Purpose.")]
    assert [tuple(prose) for prose in comments(path)] == [
        (2, "one\ntwo lines\nof comment"),
        (7, "another"),
    ]
