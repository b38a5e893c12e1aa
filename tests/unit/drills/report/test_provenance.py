"""A report names the commit of the code that made it, if that is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

from faultline_drills.provenance import commit_of


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def checkout(folder: Path) -> Path:
    """A repository with a package, laid out like this one."""
    package = folder / "src" / "faultline"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return package


def test_a_checkout_has_a_commit_and_is_marked_if_it_was_changed(tmp_path: Path) -> None:
    package = checkout(tmp_path)
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert commit_of(package) == commit
    (package / "__init__.py").write_text("changed = True\n")
    assert commit_of(package) == commit + "+"


def test_a_package_installed_in_another_checkout_has_no_commit(
    tmp_path: Path,
) -> None:
    checkout(tmp_path)
    installed = tmp_path / ".venv" / "lib" / "faultline"
    installed.mkdir(parents=True)
    assert commit_of(installed) is None


def test_without_a_repository_the_commit_is_unknown(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
