"""What a package index shows about both distributions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import faultline
from release.index_readme import REPOSITORY, absolute_links

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"faultline-queue": ROOT, "faultline-drills": ROOT / "drills"}


def project(name: str) -> dict[str, Any]:
    settings = tomllib.loads((DISTRIBUTIONS[name] / "pyproject.toml").read_text())
    table: dict[str, Any] = settings["project"]
    return table


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_names_its_addresses(name: str) -> None:
    urls = project(name)["urls"]
    assert set(urls) == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert all(address.startswith(REPOSITORY) for address in urls.values())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_an_address_of_a_file_names_one_that_exists(name: str) -> None:
    for address in project(name)["urls"].values():
        inside = re.match(rf"{re.escape(REPOSITORY)}/(?:blob|tree)/main/(.+)", address)
        assert inside is None or (ROOT / inside[1]).exists(), address


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_typed_and_brings_its_license(name: str) -> None:
    assert project(name)["license"] == "Apache-2.0"
    assert "Typing :: Typed" in project(name)["classifiers"]
    folder = DISTRIBUTIONS[name]
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    package = {"faultline-queue": "faultline", "faultline-drills": "faultline_drills"}[name]
    assert (folder / "src" / package / "py.typed").exists()


def test_the_index_gets_the_readme_with_absolute_links() -> None:
    text = (ROOT / "README.md").read_text()
    shown = absolute_links(text, "1.2.3")
    targets = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []
    assert len(targets) == len(re.findall(r"\]\(([^)\s]+)\)", text))


def test_links_in_code_and_to_other_sites_stay() -> None:
    text = "`[a](b)` [c](https://d) [e](#f)\n```\n[g](h)\n```\n"
    assert absolute_links(text, "1") == text


def test_an_image_is_linked_as_a_file_and_a_page_as_a_page() -> None:
    shown = absolute_links("![a](docs/a.png) [b](docs/b.md#c)", "0.1.0")
    files = "https://raw.githubusercontent.com/faultline-queue/faultline/v0.1.0"
    assert shown == f"![a]({files}/docs/a.png) [b]({REPOSITORY}/blob/v0.1.0/docs/b.md#c)"


def test_a_comment_for_the_tests_is_not_shown() -> None:
    assert absolute_links("a\n\n<!-- run: in the background -->\n```\nb\n```\n", "1") == (
        "a\n\n```\nb\n```\n"
    )


def test_the_readme_of_the_drills_has_no_relative_links() -> None:
    assert re.findall(r"\]\((?!https:)", (ROOT / "drills" / "README.md").read_text()) == []


def test_the_version_names_the_distribution() -> None:
    """Another project on the package index has the same module and command."""
    command = [sys.executable, "-m", "faultline", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == f"faultline-queue {faultline.__version__} (faultline)\n"
