"""Docstrings and comments use plain words, and first lines are short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.pages import ROOT
from tests.tidy.python_prose import comments, docstrings
from tests.tidy.words import banned_words

MAX_FIRST_LINE = 80
FOLDERS = (
    *("benchmarks", "docs", "examples", "k8s", "model", "monitoring"),
    *("src/faultline/cli", "src/faultline/embedded", "src/faultline/testing"),
    *("tests/benchmarks", "tests/cli", "tests/dashboard", "tests/embedded", "tests/monitoring"),
    *("tests/public_api", "tests/testing", "tests/tidy"),
)
FILES = [
    path
    for name in FOLDERS
    for path in sorted((ROOT / name).rglob("*.py"))
    if path.name not in ("words.py", "test_words.py")  # which name the words
    and ".environments" not in path.parts  # installed peers
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_uses_plain_words(path: Path) -> None:
    found = [
        f"line {prose.line + finding.line - 1}: {finding.word!r}; instead: {finding.instead}"
        for prose in (*docstrings(path), *comments(path))
        for finding in banned_words(prose.text)
    ]
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_first_line_of_a_docstring_is_short(path: Path) -> None:
    first_lines = [(prose.line, prose.text.splitlines()[0]) for prose in docstrings(path)]
    assert [(line, text) for line, text in first_lines if len(text) > MAX_FIRST_LINE] == []


def test_prose_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text('"""Purpose."""\nvalue = 1  # one\n# two lines\n# of comment\n\n\n# another\n')
    assert [tuple(prose) for prose in docstrings(path)] == [(1, "Purpose.")]
    assert [tuple(prose) for prose in comments(path)] == [
        (2, "one\ntwo lines\nof comment"),
        (7, "another"),
    ]
