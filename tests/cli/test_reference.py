"""docs/cli.md describes every command and option, as their help texts do."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.tidy.pages import DOCS

from .every_command import EVERY_COMMAND


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", DOCS / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(reference: ModuleType) -> None:
    assert reference.DOCUMENT.read_text() == reference.document(), "run: make cli-reference"


def test_the_page_has_a_section_for_every_command() -> None:
    headings = set((DOCS / "cli.md").read_text().splitlines())
    missing = [
        words for words in EVERY_COMMAND if f"### faultline {' '.join(words)}" not in headings
    ]
    assert missing == []
