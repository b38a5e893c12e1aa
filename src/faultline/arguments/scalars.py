"""Codecs of JSON's own scalars, of enums and of literals."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, Flag
from typing import Any

from faultline.arguments.codec import ANY_KIND, Codec, JsonKind, Mismatch, Unsupported, kind_of

_MAX_SHOWN = 10


class AnyJson(Codec):
    """Any JSON value, as it is; it is checked when the payload is encoded."""

    name = "Any"
    kinds = ANY_KIND
    is_plain = True

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, value: Any) -> Any:
        return value


class JsonScalar(Codec):
    """None, bool, int or str: the same in Python and in JSON."""

    is_plain = True

    def __init__(self, python_type: type, kind: JsonKind) -> None:
        self.name = "None" if python_type is type(None) else python_type.__name__
        self.kinds = frozenset({kind})
        self._type = python_type
        self._refuses_bool = python_type is not bool

    def encode(self, value: Any) -> Any:
        if not self._fits(value):
            raise self.refuse(value)
        return value

    def decode(self, value: Any) -> Any:
        if not self._fits(value):
            raise self.refuse_json(value)
        return value

    def _fits(self, value: Any) -> bool:
        if type(value) is self._type:
            return True
        return isinstance(value, self._type) and not (
            self._refuses_bool and isinstance(value, bool)
        )

    def is_type_of(self, value: Any) -> bool:
        return type(value) is self._type


class FloatCodec(Codec):
    """A float, or an int in its place: PostgreSQL stores 1e2 as 100."""

    name = "float"
    kinds = frozenset({JsonKind.NUMBER})
    is_plain = True

    def encode(self, value: Any) -> Any:
        if not isinstance(value, float | int) or isinstance(value, bool):
            raise self.refuse(value)
        return value

    def decode(self, value: Any) -> float:
        if not isinstance(value, float | int) or isinstance(value, bool):
            raise self.refuse_json(value)
        try:
            return float(value)
        except OverflowError:
            raise Mismatch("expected float, got a number that is too large for it") from None

    def is_type_of(self, value: Any) -> bool:
        return type(value) is float


class ChoiceCodec(Codec):
    """One of a few values, each with a JSON scalar: an Enum or a Literal."""

    def __init__(self, name: str, values: Sequence[tuple[Any, Any]]) -> None:
        """Each of `values` is a Python value and its JSON value."""
        self.name = name
        self.choices = tuple(json for _, json in values)
        self.kinds = frozenset(map(kind_of, self.choices))
        self.is_plain = all(value is json for value, json in values)
        self._json = {_key(value): json for value, json in values}
        self._values = {_key(json): value for value, json in values}
        shown = ", ".join(repr(json)[:80] for json in self.choices[:_MAX_SHOWN])
        self.form = f"one of {shown}{', …' if len(self.choices) > _MAX_SHOWN else ''}"

    def encode(self, value: Any) -> Any:
        try:
            return self._json[_key(value)]
        except (KeyError, TypeError):  # TypeError: not hashable
            raise self.refuse(value) from None

    def decode(self, value: Any) -> Any:
        try:
            return self._values[_key(value)]
        except (KeyError, TypeError):
            raise self.refuse_json(value) from None

    def is_type_of(self, value: Any) -> bool:
        return any(_key(value)[0] is kind for kind, _ in self._json)


class FlagCodec(Codec):
    """A Flag as its number, which may combine several members."""

    kinds = frozenset({JsonKind.NUMBER})

    def __init__(self, python_type: type[Flag]) -> None:
        self.name = python_type.__name__
        self._type = python_type

    def encode(self, value: Any) -> int:
        if not isinstance(value, self._type):
            raise self.refuse(value)
        return int(value.value)

    def decode(self, value: Any) -> Flag:
        try:
            if type(value) is int:
                return self._type(value)
        except ValueError:
            pass
        raise self.refuse_json(value)

    def is_type_of(self, value: Any) -> bool:
        return type(value) is self._type


def enum_codec(python_type: type[Enum]) -> Codec:
    """An Enum by value; Unsupported if the value of a member is no JSON scalar."""
    if issubclass(python_type, Flag):
        return FlagCodec(python_type)
    for member in python_type:
        if type(member.value) not in (str, int, float, bool, type(None)):
            raise Unsupported(
                f"the value of {python_type.__name__}.{member.name} is a"
                f" {type(member.value).__name__}, and enums are stored by value",
                "give every member a string, a number, a bool or None",
            )
    return ChoiceCodec(python_type.__name__, [(member, member.value) for member in python_type])


def _key(value: Any) -> tuple[Any, Any]:
    """True is not 1 here, but 1.0 is: PostgreSQL may write either."""
    return (float if type(value) is int else type(value)), value
