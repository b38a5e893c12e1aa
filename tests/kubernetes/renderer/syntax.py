"""From the text of a template to a tree: what is text, what is an action, and what belongs into what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.kubernetes.renderer.pipeline import Pipeline, Unsupported, parse

__all__ = ["Branch", "Definition", "Loop", "Node", "Print", "Text", "Unsupported", "parse_template"]

_ACTION = re.compile(
    r"\{\{(?P<left>- )?\s*(?:/\*.*?\*/|(?P<code>(?:\"(?:\\.|[^\"\\])*\"|`[^`]*`|[^`\"])*?))"
    r"\s*(?P<right> -)?\}\}",
    re.DOTALL,
)
_KEYWORDS = {"with", "template", "block", "break", "continue"}


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Print:
    pipeline: Pipeline


@dataclass
class Branch:
    """`if`, with each `else if` as a branch in the last one's `otherwise`."""

    condition: Pipeline
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] = field(default_factory=list)


@dataclass
class Loop:
    key: str | None
    value: str | None
    over: Pipeline
    body: list[Node] = field(default_factory=list)


@dataclass
class Definition:
    name: str
    body: list[Node] = field(default_factory=list)


Node = Text | Print | Branch | Loop | Definition


def _pieces(source: str) -> Iterator[str | tuple[str]]:
    """Texts as they are left by the trimming, and actions as tuples; comments are gone."""
    at, trims = 0, False
    for found in _ACTION.finditer(source):
        text = source[at : found.start()]
        text = text.lstrip() if trims else text
        yield text.rstrip() if found["left"] else text
        if "{{" in text:
            raise Unsupported(
                f"an action that is not understood: {text[text.index('{{') :][:80]!r}"
            )
        if found["code"] is not None:
            yield (found["code"].strip(),)
        at, trims = found.end(), found["right"] is not None
    rest = source[at:]
    if "{{" in rest:
        raise Unsupported(f"an action that does not end: {rest[rest.index('{{') :][:80]!r}")
    yield rest.lstrip() if trims else rest


def parse_template(source: str) -> list[Node]:
    body: list[Node] = []
    # What is open, and where its children go. An `else if` takes its `if`'s place: one `end` closes both.
    stack: list[tuple[Node | None, list[Node]]] = [(None, body)]
    for piece in _pieces(source):
        here = stack[-1][1]
        if isinstance(piece, str):
            if piece:
                here.append(Text(piece))
            continue
        word, _, rest = piece[0].partition(" ")
        if word in _KEYWORDS:
            raise Unsupported(f"{word}: {piece[0]!r}")
        if word == "if":
            branch = Branch(parse(rest))
            here.append(branch)
            stack.append((branch, branch.body))
        elif word == "else":
            owner = stack[-1][0]
            if not isinstance(owner, Branch):
                raise Unsupported(f"else that belongs to no if: {piece[0]!r}")
            if rest.startswith("if "):
                inner = Branch(parse(rest[3:]))
                owner.otherwise.append(inner)
                stack[-1] = (inner, inner.body)
            elif rest:
                raise Unsupported(f"{piece[0]!r}")
            else:
                stack[-1] = (owner, owner.otherwise)
        elif word == "range":
            loop = _loop(rest)
            here.append(loop)
            stack.append((loop, loop.body))
        elif word == "define":
            definition = Definition(rest.strip().strip('"'))
            here.append(definition)
            stack.append((definition, definition.body))
        elif word == "end":
            if len(stack) == 1:
                raise Unsupported("one end too many")
            stack.pop()
        else:
            here.append(Print(parse(piece[0])))
    if len(stack) != 1:
        raise Unsupported(f"no end for {stack[-1][0]!r}"[:200])
    return body


def _loop(code: str) -> Loop:
    named = re.fullmatch(r"(?:\$(\w+)\s*,\s*)?\$(\w+)\s*:=\s*(.+)", code, re.DOTALL)
    if named is None:
        return Loop(None, None, parse(code))
    return Loop(named[1], named[2], parse(named[3]))
