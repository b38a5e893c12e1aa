"""Words that the project's prose avoids, each with what to write instead.

A sentence names its subject: the worker, PostgreSQL, the caller. One act has one verb, and a metaphor
explains nothing. docs/glossary.md has the words that are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ACTOR = "name the actor: the worker, the client, the operator, PostgreSQL"
_RELEASE = "release, requeue or return"

# Regular expressions without regard to case, matched at word boundaries.
BANNED = {
    r"whoever|whomever": _ACTOR,
    r"somebody|someone": _ACTOR,
    r"nobody|no one": _ACTOR,
    r"anybody|anyone": _ACTOR,
    r"everybody|everyone": _ACTOR,
    r"those who|one who": _ACTOR,
    r"heed(?:s|ed|ing)?": "obey, check or respect",
    r"papers": "token and lease",
    r"of the kind": "say which",
    r"t(?:ake|akes|aking|aken|ook) back": "reconcile",
    r"g(?:ive|ives|iving|iven|ave) back": _RELEASE,
    r"hand(?:s|ed|ing)? back": _RELEASE,
    r"g(?:ive|ives|iving|iven|ave) out": "issue",
    r"bur(?:y|ies|ied|ying)": "fail",
    r"reap(?:s|ed|ing|er)?": "reconcile",
    r"word to leave|told to leave|told to go|asked to leave": "SIGTERM, or a drain request",
    r"put(?:s|ting)? down": "release or record",
    r"st(?:and|ands|ood|anding) in for": "replace",
    r"in (?:its|their|our) hands": "held by the worker",
    r"found out": "detected",
    r"mended": "fixed",
    r"anew": "again",
    r"blows?": "fault",
    r"the world": "say what",
    r"the zombie": "the stale worker",
    r"tells? the story|the story of": "describe",
    r"a look at": "a read, or a check",
}
_BANNED = re.compile(
    "|".join(rf"(?P<w{number}>\b(?:{word})\b)" for number, word in enumerate(BANNED)), re.IGNORECASE
)


class Finding(NamedTuple):
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.word!r}; instead: {self.instead}"


def banned_words(text: str) -> Iterator[Finding]:
    """Every banned word of `text`; a phrase is found across a line break too."""
    hints = list(BANNED.values())
    spaced = text.replace("\n", " ")
    for found in _BANNED.finditer(spaced):
        assert found.lastgroup is not None
        line = text.count("\n", 0, found.start()) + 1
        yield Finding(line, found.group(), hints[int(found.lastgroup[1:])])
