"""Manifests, rules, scripts and the model use plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.pages import ROOT
from tests.tidy.words import banned_words

PATTERNS = (
    "compose.yaml",
    "Dockerfile",
    "Makefile",
    "deploy/**/*.sh",
    "examples/**/*.*",
    "k8s/**/*.y*ml",
    "k8s/**/*.t*",
    "model/*.p*",
    "monitoring/**/*.y*ml",
    "monitoring/**/*.json",
)
FILES = sorted(
    path
    for pattern in PATTERNS
    for path in ROOT.glob(pattern)
    if path.is_file() and not any(part.startswith((".", "__")) for part in path.parts)
)


def test_the_files_are_found() -> None:
    names = {path.name for path in FILES}
    assert {"compose.yaml", "values.yaml", "alerts.yml", "faultline.pml", "overview.json"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_uses_plain_words(path: Path) -> None:
    assert [str(found) for found in banned_words(path.read_text())] == []
