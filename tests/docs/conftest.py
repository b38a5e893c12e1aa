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
from tests.docs.fresh_system import make_path, make_path_without_installing
from tests.docs.shell import PageShell

_START_SECONDS = 110.0  # the machine may be busy

_ROOT = Path(__file__).parents[2]
_CHECKOUT = f"{_ROOT / 'src'}:{_ROOT / 'drills' / 'src'}"


def _environment(home: Path, **more: str) -> dict[str, str]:
    return {**clean_environment(), "FAULTLINE_DATA_DIR": str(home / "data"), **more}


def _shell(home: Path, environment: dict[str, str]) -> Iterator[PageShell]:
    folder = home / "empty"
    folder.mkdir()
    folder.chmod(0o755)
    shell = PageShell(folder, environment)
    try:
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
    """A shell in an empty folder on a fresh system; `pip install` downloads nothing."""
    programs = make_path_without_installing(home / "system")
    yield from _shell(home, _environment(home, PATH=str(programs), PYTHONPATH=_CHECKOUT))


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
    """A shell in an empty folder on a fresh system; pip installs the built wheels."""
    constraints = home / "constraints.txt"
    constraints.write_text(
        "".join(
            f"{wheel.name.split('-')[0].replace('_', '-')}=={wheel.name.split('-')[1]}\n"
            for wheel in distributions.glob("*.whl")
        )
    )
    environment = _environment(
        home,
        PATH=str(make_path(home / "system")),
        PIP_CONSTRAINT=str(constraints),
        PIP_FIND_LINKS=str(distributions),
        TEST_DATABASE_URL=own_server_url,
    )
    yield from _shell(home, environment)
