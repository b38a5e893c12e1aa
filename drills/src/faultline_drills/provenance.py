"""The provenance of a report: command, commit, seed, machine, versions."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import faultline
from faultline.postgres.sessions import connect

_GIT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Provenance:
    command: str
    commit: str | None  # None outside of a git checkout of Faultline
    seed: int | None  # None if nothing is random
    machine: str
    cores: int
    postgres: str
    python: str
    faultline: str
    made_at: str

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def line(self) -> str:
        """One line, for the bottom of a plot."""
        seed = "no seed" if self.seed is None else f"seed {self.seed}"
        return (
            f"{self.command} · commit {self.commit or 'unknown'} · {seed} · {self.cores} cores,"
            f" {self.machine} · PostgreSQL {self.postgres} · Python {self.python} · {self.made_at}"
        )


def provenance(command: str, *, seed: int | None, postgres: str) -> Provenance:
    return Provenance(
        command=command,
        commit=commit_of(Path(faultline.__file__).parent),
        seed=seed,
        machine=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        postgres=postgres,
        python=platform.python_version(),
        faultline=faultline.__version__,
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def server_version(url: str) -> str:
    with connect(url) as conn:
        return str(conn.info.parameter_status("server_version"))


def in_words(facts: Mapping[str, Any]) -> dict[str, str]:
    """The provenance in words, for a page."""
    seed = facts["seed"]
    return {
        "made by": f"`{facts['command']}`",
        "commit": facts["commit"] or "unknown",
        "seed": "none: nothing is random" if seed is None else str(seed),
        "machine": f"{facts['cores']} cores, {facts['machine']}",
        "versions": f"Faultline {facts['faultline']}, PostgreSQL {facts['postgres']},"
        f" Python {facts['python']}",
        "at": facts["made_at"],
    }


def as_list(facts: Mapping[str, Any]) -> str:
    """The provenance in words, as a Markdown list."""
    return "\n".join(f"- {name}: {value}" for name, value in in_words(facts).items())


def commit_of(package: Path) -> str | None:
    """The commit of this package, with "+" if it was changed since; None if unknown.

    A package that is installed inside another project's checkout has no known commit.
    """
    git = shutil.which("git")
    if git is None:
        return None
    top = _git(git, package, "rev-parse", "--show-toplevel")
    if top is None or Path(top, "src", "faultline").resolve() != package.resolve():
        return None
    commit = _git(git, package, "rev-parse", "--short=12", "HEAD")
    changes = _git(git, package, "status", "--porcelain", "--", str(package))
    return commit and commit + ("+" if changes else "")


def _git(git: str, folder: Path, *words: str) -> str | None:
    command = [git, "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
