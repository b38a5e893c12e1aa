"""The layout of tests/: every folder is described; test modules are in folders."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
AT_THE_TOP = {"test_lease_race_fencing.py"}  # where its users look for it


def test_the_readme_describes_every_folder_and_no_other() -> None:
    text = (TESTS / "README.md").read_text()
    described = re.findall(r"^\| `(\w+)` \| .+ \|$", text, re.MULTILINE)
    assert described == sorted(path.parent.name for path in TESTS.glob("*/__init__.py"))


def test_test_modules_lie_in_folders() -> None:
    assert {path.name for path in TESTS.glob("test_*.py")} == AT_THE_TOP
