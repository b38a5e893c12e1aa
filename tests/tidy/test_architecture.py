"""docs/architecture.md names files that exist, and counts its hops correctly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import faultline

PACKAGE = Path(faultline.__file__).parent
PAGE = PACKAGE.parent.parent / "docs" / "architecture.md"
FILE = re.compile(r"`((?!src/)[a-z_/]+(?:\.py|\.sql|/))`")
SQL_FUNCTION = re.compile(r"`(sql/\w+\.sql)`:? `faultline\.(\w+)`")
HOP = re.compile(r"^(\d+)\. `", re.MULTILINE)


def named_files() -> list[str]:
    return sorted(set(FILE.findall(PAGE.read_text())))


@pytest.mark.parametrize("name", named_files())
def test_every_file_that_the_page_names_exists(name: str) -> None:
    root = PACKAGE.parent.parent if name.startswith(("drills/", "tests/")) else PACKAGE
    own = {"statements/", "postgres/", "api/", "inspector/", "serving/", "sql/", "sql/migrations/"}
    assert (root / name).exists(), name
    assert not name.endswith("/") or name in own or name.startswith("drills/")


def test_the_page_counts_its_hops() -> None:
    page = PAGE.read_text()
    hops = [int(number) for number in HOP.findall(page)]
    assert hops == list(range(1, len(hops) + 1))
    assert f"The way of a job: {len(hops)} hops" in page


@pytest.mark.parametrize(("file", "function"), SQL_FUNCTION.findall(PAGE.read_text()))
def test_every_sql_function_is_in_the_file_that_the_page_names(file: str, function: str) -> None:
    assert f"FUNCTION faultline.{function}(" in (PACKAGE / file).read_text()
