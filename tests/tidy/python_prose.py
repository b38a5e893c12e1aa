"""The prose of a Python file: its docstrings and comments, with their lines."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Prose(NamedTuple):
    line: int
    text: str


def docstrings(path: Path) -> Iterator[Prose]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield Prose(node.body[0].lineno, text)


def comments(path: Path) -> Iterator[Prose]:
    """The comments; lines that follow each other are one, so that phrases are found."""
    yield from _joined(tokenize.generate_tokens(StringIO(path.read_text()).readline))


def _joined(tokens: Iterator[tokenize.TokenInfo]) -> Iterator[Prose]:
    begun: Prose | None = None
    for token in tokens:
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("# ")
        if begun is not None and token.start[0] == begun.line + begun.text.count("\n") + 1:
            begun = Prose(begun.line, f"{begun.text}\n{text}")
            continue
        if begun is not None:
            yield begun
        begun = Prose(token.start[0], text)
    if begun is not None:
        yield begun
