"""A pipeline as a tree: what stands between `{{` and `}}`, unless it is a keyword."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:\\.|[^"\\])*"|`[^`]*`)
      | (?P<number>-?\d+)(?![\w.])
      | (?P<path>\$?(?:\w+)?(?:\.\w+)+|\$\w*|\.)
      | (?P<word>[A-Za-z]\w*)
      | (?P<sign>:=|=|\||\(|\))
    )""",
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "false": False, "nil": None}


class Unsupported(Exception):
    """The template uses something that this renderer does not know."""


@dataclass(frozen=True)
class Constant:
    value: str | int | bool | None


@dataclass(frozen=True)
class Path:
    """`.Values.a`: from the dot (root ""), or from a variable (root "$" or "$name")."""

    root: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A function by its name, or whatever is found at a path, with arguments."""

    function: str | Path
    arguments: tuple[Operand, ...]


Operand = Constant | Path | Call


@dataclass(frozen=True)
class Pipeline:
    """Each stage is the last argument of the next. With a target, the result is kept and not printed."""

    stages: tuple[Operand, ...]
    target: str | None = None
    declares: bool = False


def parse(code: str) -> Pipeline:
    tokens = _tokens(code)
    target, declares = None, False
    if len(tokens) > 2 and tokens[1] in (("sign", ":="), ("sign", "=")):
        kind, target = tokens[0]
        if kind != "path" or not re.fullmatch(r"\$\w+", target):
            raise Unsupported(f"cannot be assigned to: {code!r}")
        target, declares, tokens = target[1:], tokens[1][1] == ":=", tokens[2:]
    stages, rest = _stages(tokens, code)
    if rest:
        raise Unsupported(f"{rest[0][1]!r} in {code!r}")
    return Pipeline(tuple(stages), target, declares)


def _tokens(code: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    code = code.strip()
    while at < len(code):
        found = _TOKEN.match(code, at)
        if found is None:
            raise Unsupported(f"{code[at:][:40]!r} in {code!r}")
        kind = str(found.lastgroup)
        follows = bool(tokens) and (tokens[-1][0] != "sign" or tokens[-1][1] == ")")
        if kind != "sign" and follows and not found[0][0].isspace():  # (…).field, or 1.5
            raise Unsupported(f"{found[0]!r} in {code!r}")
        tokens.append((kind, found[kind]))
        at = found.end()
    return tokens


def _stages(
    tokens: list[tuple[str, str]], code: str
) -> tuple[list[Operand], list[tuple[str, str]]]:
    """Up to the end, or to the parenthesis that closes."""
    stages: list[Operand] = []
    operands: list[Operand | str] = []
    while tokens and tokens[0] != ("sign", ")"):
        (kind, text), tokens = tokens[0], tokens[1:]
        if (kind, text) == ("sign", "|"):
            stages.append(_stage(operands, bool(stages), code))
            operands = []
        elif (kind, text) == ("sign", "("):
            inner, tokens = _stages(tokens, code)
            if not tokens:
                raise Unsupported(f"a parenthesis is not closed: {code!r}")
            tokens = tokens[1:]
            operands.append(_piped(inner))
        elif kind == "sign":
            raise Unsupported(f"{text!r} in {code!r}")
        else:
            operands.append(_operand(kind, text))
    stages.append(_stage(operands, bool(stages), code))
    return stages, tokens


def _operand(kind: str, text: str) -> Operand | str:
    if kind == "string":
        return Constant(text[1:-1] if text[0] == "`" else json.loads(text))
    if kind == "number":
        return Constant(int(text))
    if kind == "word":
        return Constant(_CONSTANTS[text]) if text in _CONSTANTS else text
    root, *fields = text.split(".")
    if text == ".":
        return Path("", ())
    if root and not root.startswith("$"):
        raise Unsupported(f"{text!r}")
    return Path(root, tuple(fields))


def _stage(operands: list[Operand | str], is_piped_into: bool, code: str) -> Operand:
    if not operands:
        raise Unsupported(f"an empty stage in {code!r}")
    first, rest = operands[0], operands[1:]
    arguments = tuple(Call(one, ()) if isinstance(one, str) else one for one in rest)
    if isinstance(first, str):
        return Call(first, arguments)
    if isinstance(first, Path) and (arguments or is_piped_into):
        return Call(first, arguments)
    if arguments or is_piped_into:
        raise Unsupported(f"{first!r} is given arguments in {code!r}")
    return first


def _piped(stages: list[Operand]) -> Operand:
    """One operand for several stages: each as the last argument of the next."""
    result = stages[0]
    for stage in stages[1:]:
        assert isinstance(stage, Call)
        result = Call(stage.function, (*stage.arguments, result))
    return result
