"""Builds both distributions, and each wheel a second time from its sdist."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {"faultline-queue": ROOT, "faultline-drills": ROOT / "drills"}
LOCK = ROOT / "requirements-release.lock"
STEP_SECONDS = 900


class ReleaseProblem(Exception):
    """A distribution cannot be built or installed, or is not what it should be."""


@dataclass(frozen=True)
class Distribution:
    name: str
    sdist: Path
    wheel: Path

    @property
    def source(self) -> Path:
        return SOURCES[self.name]


def run(
    *command: str | Path,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = STEP_SECONDS,
) -> str:
    """Run a command and return its output; raise ReleaseProblem if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=clean_environment() if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    if done.returncode:
        raise ReleaseProblem(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """The environment without settings that would let a program find this checkout."""
    dropped = ("PYTHON", "VIRTUAL_ENV", "FAULTLINE_", "DATABASE_URL", "PG", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def make_environment(folder: Path, requirements: Sequence[str | Path]) -> Path:
    """Make a virtual environment and return its folder of programs."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    programs = folder / "bin"
    install(programs, *requirements)
    return programs


def install(programs: Path, *requirements: str | Path) -> None:
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    if requirements:
        run(*pip, *requirements, cwd=programs)


def make_tools(folder: Path) -> Path:
    """Make an environment with the build and upload tools, pinned by hash."""
    return make_environment(folder, ["--require-hashes", "-r", LOCK])


def build(tools: Path, folder: Path) -> list[Distribution]:
    """Build both distributions into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_build(tools, name, folder) for name in SOURCES]


def _build(tools: Path, name: str, folder: Path) -> Distribution:
    build_from = (tools / "python", "-m", "build", "--no-isolation", "--outdir")
    stem = name.replace("-", "_")
    run(*build_from, folder, "--sdist", "--wheel", SOURCES[name], cwd=folder)
    [sdist] = folder.glob(f"{stem}-*.tar.gz")
    [wheel] = folder.glob(f"{stem}-*.whl")
    unpacked = folder.parent / f"{stem}-from-sdist"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    [source] = unpacked.iterdir()
    run(*build_from, unpacked, "--wheel", source, cwd=unpacked)
    [again] = unpacked.glob("*.whl")
    _require_same_content(wheel, again)
    return Distribution(name, sdist, wheel)


def _require_same_content(wheel: Path, again: Path) -> None:
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        if set(first.namelist()) != set(second.namelist()):
            differing = sorted(set(first.namelist()) ^ set(second.namelist()))
        else:
            names = first.namelist()
            differing = [name for name in names if first.read(name) != second.read(name)]
    if differing:
        raise ReleaseProblem(f"{wheel.name} from the sdist differs in {', '.join(differing[:10])}")
