"""The code blocks of a Markdown page, and the comments that say how to run them.

| comment before a block | meaning |
|---|---|
| none, a block of commands | run in the page's shell; each command must succeed |
| none, a block that begins with `# name` | a file: it is written, and a later block may write it again |
| `<!-- output -->` | the commands before it print these lines; `…` stands for any text |
| `<!-- runs until it is stopped -->` | each command must start, and end by SIGTERM |
| `<!-- instead: COMMAND -->` | the test runs COMMAND, because it has another address or server |
| `<!-- not run: REASON -->` | skipped |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
OUTPUT = "output"
UNTIL_STOPPED = "runs until it is stopped"


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    text: str
    comment: str

    @property
    def not_run(self) -> str:
        """Why it is not run; empty if it is."""
        return self._after("not run: ")

    @property
    def replacement(self) -> str:
        return self._after("instead: ")

    @property
    def file_name(self) -> str:
        found = _FILE.match(self.text)
        return found["name"] if found else ""

    def _after(self, prefix: str) -> str:
        return self.comment.removeprefix(prefix) if self.comment.startswith(prefix) else ""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = [
        Block(
            line=text.count("\n", 0, match.start("text")),
            language=match["language"],
            text=match["text"],
            comment=match["comment"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]
    fences = len(re.findall(r"^ *```", text, re.MULTILINE))
    assert fences == 2 * len(found), f"{page}: {fences} fences, but {len(found)} blocks were read"
    return found


def missing_lines(wanted: str, output: str) -> list[str]:
    """The lines of an output block that were not printed in this order."""
    rest, missing = output, []
    for line in filter(None, map(str.strip, wanted.splitlines())):
        pattern = ".*?".join(re.escape(part.strip()) for part in line.split("…"))
        found = re.search(re.sub(r"(\\ )+", r"\\s+", pattern), rest)
        if found is None:
            missing.append(line)
        else:
            rest = rest[found.end() :]
    return missing
