"""Plants a mutant in a scratch copy of the package, and lets the layer that must find it look for it."""

from __future__ import annotations

import os
import re
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
from faultline.errors import FaultlineError
from faultline_drills.mutants.mutant import Layer, Mutant

_LONGEST_WORDS = 300
# A rule and what broke it, or an error; not a row of a timeline.
_FINDING = re.compile(r"(error \[|[a-z][a-z_ ]+: )(?!reports/|faultline drill)")


class MutantNotPlanted(FaultlineError):
    """The source has changed under a mutant: its edit no longer fits."""

    code = "mutant_not_planted"


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What became of one mutant in one layer."""

    mutant: str
    layer: str
    killed: bool
    seconds: float
    how: str  # the layer's last words

    @property
    def rule(self) -> str:
        """What gave it away, without the evidence."""
        return self.how.partition(":")[0].replace("_", " ") if self.killed else ""

    def facts(self) -> dict[str, object]:
        return {
            "name": self.mutant,
            "layer": self.layer,
            "killed": self.killed,
            "seconds": round(self.seconds, 1),
            "how": self.how,
        }


@contextmanager
def mutated_copy(mutant: Mutant | None) -> Iterator[Path]:
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
                    hint="adapt faultline_drills/mutants to the source",
                )
            path.write_text(text.replace(edit.old, edit.new))
        yield Path(folder)


def run_layer(
    mutant: Mutant | None,
    layer: Layer,
    *,
    server_url: str | None,
    timeout_seconds: float = 180.0,
) -> MutantResult:
    """Run the layer's command on the copy: a mutant is killed by a rule that was seen to be broken.

    That a story could not be told (exit code 2) counts for those that are known to stop everything, and
    for the faithful copy, on which every layer has to be green. A copy that does not even run would
    look the same.
    """
    began = time.monotonic()
    with mutated_copy(mutant) as folder, tempfile.TemporaryDirectory() as reports:
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        environment.pop("DATABASE_URL", None)
        environment.pop("DATABASE_URL_FILE", None)
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
            how = _last_words(ran.stdout, ran.stderr)
            may_stop = mutant is None or mutant.blocks_the_drill
            killed = ran.returncode == 1 or (ran.returncode == 2 and may_stop)
            came_to_no_verdict = how.startswith("error [") or "Traceback" in ran.stderr
            if came_to_no_verdict and mutant is not None:
                killed = False
        except subprocess.TimeoutExpired:
            killed, how = mutant is None, f"it did not come to an end in {timeout_seconds:g} s"
    name = mutant.name if mutant else "faultline itself"
    return MutantResult(name, layer.name, killed, time.monotonic() - began, how)


def _last_words(*texts: str) -> str:
    """The line that says what is wrong: a rule and its evidence, or an error."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _FINDING.match(line)]
    return (telling or lines or ["nothing"])[0][:_LONGEST_WORDS]


def layers_of(mutants: Sequence[Mutant]) -> list[Layer]:
    """The layers that are named, each once: they must be green on Faultline itself."""
    return list(dict.fromkeys(mutant.killed_by for mutant in mutants))
