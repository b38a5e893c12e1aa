"""Shells for the pages: with this checkout, or with the built distributions."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultline import embedded
from release.building import build, clean_environment, make_tools
from tests.docs.shell import PageShell

_START_SECONDS = 110.0  # the machine may be busy

# `pip install` and virtual environments, for a shell that has this checkout installed.
_INSTALLED = """
pip() { echo "$@" >> "$INSTALLS"; }
python() {
    if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && : > "$3/bin/activate"; else command python "$@"; fi
}
"""


def _environment(home: Path, **more: str) -> dict[str, str]:
    return {**clean_environment(), "FAULTLINE_DATA_DIR": str(home / "data"), **more}


def _shell(home: Path, environment: dict[str, str], setup: str = "") -> Iterator[PageShell]:
    folder = home / "empty"
    folder.mkdir()
    folder.chmod(0o755)
    shell = PageShell(folder, environment)
    try:
        if setup:
            shell.run_commands(setup)
        yield shell
    finally:
        shell.close()
        # The server outlives its commands; the data directory says which one it is.
        stop = [sys.executable, "-m", "faultline", "db", "stop"]
        subprocess.run(stop, env=environment, capture_output=True, timeout=60, check=True)


@pytest.fixture
def own_server_url(home: Path) -> Iterator[str]:
    """The reader's own PostgreSQL, with settings that `doctor` accepts."""
    server = embedded.Server(home / "own-server")
    server.start(_START_SECONDS)
    yield server.url
    server.stop(mode="immediate")


@pytest.fixture
def plain_shell(home: Path) -> Iterator[PageShell]:
    """A shell in an empty folder, in which `pip install` does nothing."""
    environment = _environment(
        home, PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin", INSTALLS=str(home / "installs")
    )
    yield from _shell(home, environment, _INSTALLED)


@pytest.fixture
def first_screen_shell(home: Path, plain_shell: PageShell) -> PageShell:
    """The same, with a cluster: commands wait only 30 s until it is created."""
    embedded.ensure_running(home / "data", _START_SECONDS)
    embedded.stop_running(home / "data")
    return plain_shell


@pytest.fixture
def checkout_shell(first_screen_shell: PageShell, own_server_url: str) -> PageShell:
    first_screen_shell.run_commands(f"export TEST_DATABASE_URL={shlex.quote(own_server_url)}")
    return first_screen_shell


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built wheels of this tree."""
    workspace = tmp_path_factory.mktemp("release")
    build(make_tools(workspace / "tools"), workspace / "dist")
    return workspace / "dist"


@pytest.fixture
def user_shell(home: Path, distributions: Path, own_server_url: str) -> Iterator[PageShell]:
    """A shell in an empty folder, in a new environment; pip installs the built wheels."""
    environment_folder = home / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment_folder], check=True, timeout=120)
    constraints = home / "constraints.txt"
    constraints.write_text(
        "".join(
            f"{wheel.name.split('-')[0].replace('_', '-')}=={wheel.name.split('-')[1]}\n"
            for wheel in distributions.glob("*.whl")
        )
    )
    environment = _environment(
        home,
        PATH=f"{environment_folder / 'bin'}:/usr/bin:/bin",
        PIP_CONSTRAINT=str(constraints),
        PIP_FIND_LINKS=str(distributions),
        TEST_DATABASE_URL=own_server_url,
    )
    yield from _shell(home, environment)
