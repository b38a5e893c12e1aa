"""Saves a violation as a file, and executes its interleaving again."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from faultline import __version__
from faultline.errors import InvalidInput
from faultline_drills.explorer.explorer import Counterexample, JudgedExecution, run_interleaving
from faultline_drills.explorer.explorer_database import ExplorerDatabase
from faultline_drills.explorer.interleaving import FollowInterleaving, Interleaving
from faultline_drills.explorer.programs import PROGRAMS, description_of

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Replay:
    program: str
    subject: str
    interleaving: Interleaving
    seed: int
    rules: tuple[str, ...]  # broken when it was found


@dataclass(frozen=True, slots=True)
class ReplayResult:
    replay: Replay
    execution: JudgedExecution

    @property
    def is_reproduced(self) -> bool:
        return bool(self.execution.broken_rules & set(self.replay.rules))


def save(found: Counterexample, path: Path, *, subject: str, server_version: str) -> None:
    execution = found.execution
    facts: dict[str, Any] = {
        "format": _FORMAT,
        "program": found.program,
        "description": description_of(found.program),
        "subject": subject,
        "interleaving": list(found.interleaving),
        "seed": found.seed,
        "found_after": found.found_after,
        "rules": sorted(execution.broken_rules),
        "findings": [asdict(finding) for finding in execution.findings],
        "versions": {
            "faultline": __version__,
            "commit": _commit(),
            "postgresql": server_version,
            "python": platform.python_version(),
            "psycopg": psycopg.__version__,
        },
        "steps": [asdict(step) for step in execution.record.steps],
        "history": [asdict(entry) for entry in execution.history.entries],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1, default=str) + "\n")


def load(path: Path) -> Replay:
    try:
        facts = json.loads(path.read_text())
        replay = Replay(
            program=facts["program"],
            subject=facts["subject"],
            interleaving=tuple(facts["interleaving"]),
            seed=int(facts["seed"]),
            rules=tuple(facts["rules"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"{path} is not a replay: {type(error).__name__}: {error}",
            hint="faultline drill explore --save-to DIR writes one when it finds a violation",
        ) from None
    if replay.program not in PROGRAMS:
        raise InvalidInput(
            f"{path}: there is no program {replay.program!r} in this version",
            hint="faultline drill explore --list names the programs",
        )
    return replay


def replay_interleaving(url: str, replay: Replay) -> ReplayResult:
    """Execute the saved interleaving in a scratch database with the subject's schema."""
    with ExplorerDatabase(url) as database:
        execution = run_interleaving(
            database, replay.program, FollowInterleaving(replay.interleaving), with_steps=True
        )
    return ReplayResult(replay, execution)


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, if any."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip() or None
