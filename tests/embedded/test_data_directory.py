"""Where the development server keeps its data on each operating system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from faultline import embedded

HOME = Path("/home/ada")


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A user who is not root and has set no variable."""
    for name in ("FAULTLINE_DATA_DIR", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "home", lambda: HOME)
    return monkeypatch


@pytest.mark.parametrize(
    ("system", "folder"),
    [
        ("linux", HOME / ".local/share/faultline/postgres"),
        ("darwin", HOME / "Library/Application Support/faultline/postgres"),
        ("win32", HOME / "AppData/Local/faultline/postgres"),
    ],
)
def test_each_system_has_its_folder(user: pytest.MonkeyPatch, system: str, folder: Path) -> None:
    user.setattr(sys, "platform", system)
    assert embedded.default_data_dir() == folder


@pytest.mark.parametrize(
    ("system", "variable"), [("linux", "XDG_DATA_HOME"), ("win32", "LOCALAPPDATA")]
)
def test_the_variable_of_the_system_names_another_folder(
    user: pytest.MonkeyPatch, system: str, variable: str
) -> None:
    user.setattr(sys, "platform", system)
    user.setenv(variable, "/data")
    assert embedded.default_data_dir() == Path("/data/faultline/postgres")
    user.setenv(variable, "relative")
    assert embedded.default_data_dir().is_relative_to(HOME)


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_our_own_variable_comes_first(user: pytest.MonkeyPatch, system: str) -> None:
    user.setattr(sys, "platform", system)
    user.setenv("XDG_DATA_HOME", "/data")
    user.setenv("FAULTLINE_DATA_DIR", "/chosen")
    assert embedded.default_data_dir() == Path("/chosen")


def test_root_on_linux_uses_a_folder_that_the_server_can_enter(user: pytest.MonkeyPatch) -> None:
    user.setattr(os, "geteuid", lambda: 0)
    user.setenv("XDG_DATA_HOME", "/data")
    assert embedded.default_data_dir() == Path("/var/lib/faultline/postgres")


def test_a_server_runs_in_a_folder_with_a_space(home: Path) -> None:
    """As in ~/Library/Application Support."""
    folder = home / "Application Support"
    server = embedded.Server(folder / "postgres")
    server.start()
    try:
        assert embedded.status(folder / "postgres").running
    finally:
        server.stop(mode="immediate")
    assert not embedded.status(folder / "postgres").running
