"""A codec turns values of one annotation into JSON values and back."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any


class JsonKind(StrEnum):
    NULL = "null"
    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"


ANY_KIND = frozenset(JsonKind)


def kind_of(value: Any) -> JsonKind:
    """The kind of a decoded JSON value."""
    match value:
        case None:
            return JsonKind.NULL
        case bool():
            return JsonKind.BOOLEAN
        case int() | float():
            return JsonKind.NUMBER
        case str():
            return JsonKind.STRING
        case list():
            return JsonKind.ARRAY
    return JsonKind.OBJECT


class Mismatch(Exception):
    """A value does not fit its annotation; `path` leads to it from the argument."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self._steps: list[str] = []

    def add_step(self, step: str) -> None:
        """Called by each container on the way out, the innermost first."""
        self._steps.append(step)

    def add_key(self, key: object) -> None:
        text = str(key)
        self.add_step(f".{text[:80]}" if text.isidentifier() else f"[{text[:80]!r}]")

    @property
    def path(self) -> str:
        return "".join(reversed(self._steps))


class Unsupported(Exception):
    """An annotation whose values cannot go through JSON and come back equal."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Codec:
    """Encodes and decodes the values of one annotation; both raise Mismatch.

    Messages name types and never values: an argument may be a secret, and errors are stored.
    """

    name: str  # as users write the annotation
    kinds: frozenset[JsonKind]  # of the JSON values that it writes and accepts
    form: str | None = None  # of the JSON value, where the name does not say it
    is_plain = False  # whether the JSON value is the value; its parts may be rich
    choices: tuple[Any, ...] | None = None  # all its JSON values, if they can be listed
    text_format: str | None = None  # no string has two of these formats

    def encode(self, value: Any) -> Any:
        raise NotImplementedError  # each codec has its own

    def decode(self, value: Any) -> Any:
        raise NotImplementedError  # each codec has its own

    def parts(self) -> Iterable[Codec]:
        """The codecs of what this value contains."""
        return ()

    def is_type_of(self, value: Any) -> bool:
        """Whether the value has exactly this type, whatever it contains."""
        return False

    def decodes(self, value: Any) -> bool:
        try:
            self.decode(value)
        except Mismatch:
            return False
        return True

    def refuse(self, value: Any) -> Mismatch:
        """The error for a Python value of another type."""
        found = "None" if value is None else type(value).__name__
        if found == self.name:
            found = f"an instance of another class named {found}"
        return Mismatch(f"expected {self.name}, got {found}")

    def refuse_json(self, value: Any) -> Mismatch:
        """The error for a JSON value of another kind or form."""
        kind = kind_of(value)
        found = f"another {kind}" if kind in self.kinds else with_article(kind)
        form = "" if self.form is None else f" as {self.form}"
        return Mismatch(f"expected {self.name}{form}, got {found}")


def with_article(kind: JsonKind) -> str:
    if kind is JsonKind.NULL:
        return "null"
    return f"an {kind}" if kind in (JsonKind.ARRAY, JsonKind.OBJECT) else f"a {kind}"


class RecursiveCodec(Codec):
    """Refers to the codec of a type alias that contains itself."""

    is_plain = True
    target: Codec

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def kinds(self) -> frozenset[JsonKind]:  # type: ignore[override]
        return self.target.kinds

    def encode(self, value: Any) -> Any:
        return self.target.encode(value)

    def decode(self, value: Any) -> Any:
        return self.target.decode(value)

    def parts(self) -> Iterable[Codec]:
        return (self.target,)


def is_plain_throughout(codec: Codec) -> bool:
    """Whether neither the codec nor any of its parts changes a value."""
    seen: set[int] = set()
    waiting = [codec]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        if not each.is_plain:
            return False
        seen.add(id(each))
        waiting += each.parts()
    return True
