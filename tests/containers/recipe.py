"""The Dockerfile, read: its stages, and the instructions of each in their order."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tests.containers.composition import ROOT

DOCKERFILE = ROOT / "Dockerfile"
DOCKERIGNORE = ROOT / ".dockerignore"

_CONTINUED = re.compile(r"\\\n\s*")
_COMMENT = re.compile(r"^#.*\n", flags=re.MULTILINE)


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the form that is a JSON list, or of one that is written as for a shell."""
        if self.rest.startswith("["):
            return [str(word) for word in json.loads(self.rest)]
        return shlex.split(self.rest)


@dataclass
class Stage:
    base: str
    name: str | None
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[Instruction]:
        return [instruction for instruction in self.instructions if instruction.word == word]

    def the(self, word: str) -> Instruction:
        (only,) = self.all(word)
        return only

    @property
    def environment(self) -> dict[str, str]:
        pairs = (pair for instruction in self.all("ENV") for pair in instruction.words)
        return dict(pair.split("=", 1) for pair in pairs)

    @property
    def labels(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.the("LABEL").words)

    @property
    def health_check(self) -> list[str]:
        _, command = self.the("HEALTHCHECK").rest.split("CMD ", 1)
        return [str(word) for word in json.loads(command)]


def stages() -> list[Stage]:
    text = _CONTINUED.sub(" ", _COMMENT.sub("", DOCKERFILE.read_text()))
    found: list[Stage] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            base, *named = rest.split()
            found.append(Stage(base, named[1] if named else None))
        else:
            found[-1].instructions.append(Instruction(word, rest))
    return found


def image() -> Stage:
    """The last stage, which is the image."""
    return stages()[-1]


def context() -> list[str]:
    """The paths that .dockerignore admits to the build context."""
    lines = [line for line in DOCKERIGNORE.read_text().splitlines() if line[:1] not in ("", "#")]
    assert lines[0] == "*", "everything is left out, but for what is listed"
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def copied_from_context() -> list[Path]:
    sources: list[Path] = []
    for stage in stages():
        for copy in stage.all("COPY"):
            if not copy.rest.startswith("--from="):
                sources += [Path(word) for word in copy.words[:-1]]
    return sources
