"""Environments with this checkout and other versions of a library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_TOOLS = ("pytest", "pytest-timeout", "hypothesis", "anyio")
_LIMIT_SECONDS = 1800  # of one command, on a machine with other load
_UNREACHABLE = ("(from versions: none)", "Failed to establish a new connection", "timed out")


def interpreter(*versions: str) -> Path:
    """A Python of one of these versions; skips the test if this machine has none."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        if version == running:
            return Path(sys.executable)
        found = shutil.which(f"python{version}")
        places = [folder / "bin" / "python" for folder in sorted(pyenv.glob(f"{version}.*"))]
        for python in [*places, *([Path(found)] if found else [])]:
            if _works(python):
                return python
    pytest.skip(f"this machine has no Python {' or '.join(versions)}")


def _works(python: Path) -> bool:
    """Whether it is a Python, and not pyenv's command for one that is missing."""
    ran = subprocess.run([python, "-c", "import venv"], capture_output=True, check=False)
    return ran.returncode == 0


def environment(folder: Path, python: Path, *requirements: str) -> Path:
    """Make a virtual environment with Faultline and these; returns its Python."""
    subprocess.run([python, "-m", "venv", folder], check=True, timeout=_LIMIT_SECONDS)
    own = folder / "bin" / "python"
    install(own, str(ROOT), str(ROOT / "drills"), *_TOOLS, *requirements)
    return own


def install(python: Path, *words: str) -> None:
    pip(python, "install", *words)


def pip(python: Path, *words: str) -> None:
    """Run pip; skips the test if no index of packages can be reached."""
    ran = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *words],
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if ran.returncode != 0:
        if any(text in ran.stderr for text in _UNREACHABLE):
            pytest.skip(f"pip {words[0]} reaches no index: {ran.stderr.strip().splitlines()[-1:]}")
        pytest.fail(f"pip {' '.join(words)} failed: {ran.stderr[-4000:]}")


def run(python: Path, *words: str, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program of the environment; its output is in the failure of the test."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [python, *words],
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout[-8000:]}\n{ran.stderr[-4000:]}"
    return ran.stdout + ran.stderr
