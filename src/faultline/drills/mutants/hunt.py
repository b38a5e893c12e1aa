"""Plants a mutant in a scratch copy of the package, and lets the layer that must find it look for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import faultline
from faultline.drills.mutants.catalogue import Layer, Mutant
from faultline.errors import FaultlineError

_LAST_WORDS = 3


class MutantNotPlanted(FaultlineError):
    """The source has changed under a mutant: its edit no longer fits."""

    code = "mutant_not_planted"


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of one mutant in one layer."""

    mutant: str
    layer: str
    killed: bool
    seconds: float
    how: str  # the layer's last words

    def facts(self) -> dict[str, object]:
        return {
            "name": self.mutant,
            "layer": self.layer,
            "killed": self.killed,
            "seconds": round(self.seconds, 1),
            "how": self.how,
        }


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[Path]:
    """A folder with a copy of the package in which the mutant lives; None: a faithful copy."""
    package = Path(faultline.__file__).parent
    with tempfile.TemporaryDirectory(prefix="faultline-mutant-") as folder:
        Path(folder).chmod(0o755)  # a server that runs under another account reads from here
        copy = Path(folder, "faultline")
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in mutant.edits if mutant else ():
            path = copy / edit.path
            text = path.read_text()
            if text.count(edit.old) != 1:
                name = mutant.name if mutant else ""
                raise MutantNotPlanted(
                    f"{name}: {edit.path} has its text {text.count(edit.old)} times, not once",
                    hint="adapt faultline/drills/mutants/catalogue.py to the source",
                )
            path.write_text(text.replace(edit.old, edit.new))
        yield Path(folder)


def hunt(
    mutant: Mutant | None,
    layer: Layer,
    *,
    server_url: str | None,
    timeout_seconds: float = 180.0,
) -> Kill:
    """Run the layer's command on the copy. Green is a mutant that got away; anything else has noticed."""
    began = time.monotonic()
    with planted(mutant) as folder, tempfile.TemporaryDirectory() as reports:
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        environment.pop("DATABASE_URL", None)
        if server_url is not None:
            environment["DATABASE_URL"] = server_url
        command = [sys.executable, "-m", "faultline", "drill", *layer.arguments]
        try:
            ran = subprocess.run(
                command,
                env=environment,
                cwd=reports,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
            killed, how = ran.returncode != 0, _last_words(ran.stdout, ran.stderr)
        except subprocess.TimeoutExpired:
            killed, how = True, f"it did not come to an end within {timeout_seconds:g} s"
    name = mutant.name if mutant else "faultline itself"
    return Kill(name, layer.name, killed, time.monotonic() - began, how)


def _last_words(*texts: str) -> str:
    """The line that says what is wrong: a rule and its evidence, or an error."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if ": " in line or line.startswith("error")]
    return " / ".join((telling or lines)[:_LAST_WORDS])[:400]


def layers_of(mutants: Sequence[Mutant]) -> list[Layer]:
    """The layers that are named, each once: they must be green on Faultline itself."""
    return list(dict.fromkeys(mutant.killed_by for mutant in mutants))
