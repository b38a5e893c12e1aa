"""Inserts a mutant into a copy of the package and runs a layer on the copy."""

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
import faultline_drills
from faultline.errors import FaultlineError
from faultline_drills.mutants.mutant import Layer, Mutant

_MAX_LINE_LENGTH = 300
# Matches "rule: evidence" or an error, but no row of a timeline and no command.
_FINDING = re.compile(r"(error \[|[a-z][a-z_ ]+: )(?!reports/|faultline drill)")


class MutantNotPlanted(FaultlineError):
    """A mutant's edit no longer fits the source, which has changed."""

    code = "mutant_not_planted"


@dataclass(frozen=True, slots=True)
class MutantResult:
    """The result of running one layer on one mutant."""

    mutant: str
    layer: str
    killed: bool
    seconds: float
    how: str  # the finding or error that the layer printed

    @property
    def rule(self) -> str:
        """The broken rule, without the evidence."""
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
    """A folder with a copy of the package, changed by the mutant; None: unchanged."""
    package = Path(faultline.__file__).parent
    with tempfile.TemporaryDirectory(prefix="faultline-mutant-") as folder:
        Path(folder).chmod(0o755)  # a server under another account reads from here
        copy = Path(folder, "faultline")
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in mutant.edits if mutant else ():
            path = copy / edit.path
            text = path.read_text()
            if text.count(edit.old) != 1:
                name = mutant.name if mutant else ""
                raise MutantNotPlanted(
                    f"{name}: {edit.path} contains its text {text.count(edit.old)} times, not once",
                    hint="change the edit in faultline_drills/mutants to match the source",
                )
            path.write_text(text.replace(edit.old, edit.new))
        yield Path(folder)


def run_layer(
    mutant: Mutant | None,
    layer: Layer,
    *,
    server_url: str | None,
    timeout_seconds: float = 600.0,
) -> MutantResult:
    """Run the layer's command on the copy; a broken rule (exit code 1) kills it.

    Exit code 2, a drill that could not be completed, counts only for mutants that block the drill, and
    for the unchanged copy, where every layer must be valid. Otherwise a copy that does not run at all
    would count as killed.
    """
    began = time.monotonic()
    with mutated_copy(mutant) as folder, tempfile.TemporaryDirectory() as reports:
        # The copy comes first; the drills are those that this process runs.
        path = os.pathsep.join([str(folder), str(Path(faultline_drills.__file__).parent.parent)])
        environment = {**os.environ, "PYTHONPATH": path}
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
            how = _finding(ran.stdout, ran.stderr)
            may_block = mutant is None or mutant.blocks_the_drill
            killed = ran.returncode == 1 or (ran.returncode == 2 and may_block)
            has_no_verdict = how.startswith("error [") or "Traceback" in ran.stderr
            if has_no_verdict and mutant is not None:
                killed = False
        except subprocess.TimeoutExpired:
            killed, how = mutant is None, f"the layer did not end within {timeout_seconds:g} s"
    name = mutant.name if mutant else "unchanged copy"
    return MutantResult(name, layer.name, killed, time.monotonic() - began, how)


def _finding(*texts: str) -> str:
    """The first line with a broken rule or an error, else the first line."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    findings = [line for line in lines if _FINDING.match(line)]
    return (findings or lines or ["no output"])[0][:_MAX_LINE_LENGTH]


def layers_of(mutants: Sequence[Mutant]) -> list[Layer]:
    """The layers that these mutants name, each once."""
    return list(dict.fromkeys(mutant.killed_by for mutant in mutants))
