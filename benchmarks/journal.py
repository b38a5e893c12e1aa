"""Writes the samples of a run to disk one by one, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from benchmarks.comparison import Sample, Turn

JOURNAL = "samples.jsonl"


class CannotResume(Exception):
    """There is no journal to resume, or it belongs to a run with other settings."""


class Journal:
    """A file with the run's settings in the first line, then one sample per line."""

    def __init__(self, file: IO[str], samples: list[Sample]) -> None:
        self._file = file
        self.samples = samples

    @classmethod
    def begin(cls, folder: Path, settings: Mapping[str, Any]) -> Journal:
        folder.mkdir(parents=True, exist_ok=True)
        journal = cls((folder / JOURNAL).open("w"), [])
        journal._write(settings)
        return journal

    @classmethod
    def resume(cls, folder: Path, settings: Mapping[str, Any]) -> Journal:
        """Continue the journal of a run with the same settings."""
        before, samples = _read(folder / JOURNAL)
        if before != dict(settings):
            differing = ", ".join(key for key in settings if before.get(key) != settings[key])
            raise CannotResume(
                f"{folder / JOURNAL} was measured with other settings ({differing}):"
                " use the same options, or run without --resume"
            )
        journal = cls((folder / JOURNAL).open("w"), [])  # drops an incomplete last line
        journal._write(settings)
        for sample in samples:
            journal.add(sample)
        return journal

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._write(sample.facts())

    def has(self, turn: Turn) -> bool:
        key = (turn.repeat, turn.workload.name, turn.peer.name)
        return any((each.repeat, each.workload, each.peer) == key for each in self.samples)

    def close(self) -> None:
        self._file.close()

    def _write(self, facts: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(facts) + "\n")
        self._file.flush()


def seed_of(folder: Path) -> int:
    """Return the seed of the journal in this folder."""
    seed: int = _read(folder / JOURNAL)[0]["seed"]
    return seed


def _read(path: Path) -> tuple[dict[str, Any], list[Sample]]:
    try:
        lines = path.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        raise CannotResume(f"there is no {path}: run without --resume") from None
    complete = [json.loads(line) for line in lines if line.endswith("\n")]
    if not complete or "seed" not in complete[0]:
        raise CannotResume(
            f"{path} does not begin with the settings of a run: run without --resume"
        )
    return complete[0], [Sample(**facts) for facts in complete[1:]]
