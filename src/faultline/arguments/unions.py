"""Codecs of unions, whose members must differ in JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

from faultline.arguments.codec import (
    Codec,
    JsonKind,
    Mismatch,
    RecursiveCodec,
    Unsupported,
    is_plain_throughout,
    kind_of,
    with_article,
)
from faultline.arguments.models import ModelCodec
from faultline.arguments.records import RecordCodec, RecordShape
from faultline.arguments.scalars import FloatCodec


class UnionCodec(Codec):
    """One of several types. No JSON value fits two of them, so none needs a mark.

    `settle` checks that, once all the members are complete.
    """

    is_plain = True

    def __init__(self, members: Sequence[Codec]) -> None:
        self.name = " | ".join(member.name for member in members)
        self._members = members
        self._tags: set[str] = set()

    @property
    def kinds(self) -> frozenset[JsonKind]:  # type: ignore[override]
        return frozenset[JsonKind]().union(*(member.kinds for member in self._members))

    def parts(self) -> Iterable[Codec]:
        return self._members

    def settle(self) -> None:
        """Raise Unsupported if two members cannot be told apart in JSON."""
        for one, other in combinations(list(map(_target, self._members)), 2):
            if is_plain_throughout(one) and is_plain_throughout(other):
                continue
            for kind in one.kinds & other.kinds:
                self._tell_apart(kind, one, other)
        # An int fits float as well: it stays an int where the union has both.
        self._members = sorted(self._members, key=lambda member: isinstance(member, FloatCodec))

    def _tell_apart(self, kind: JsonKind, one: Codec, other: Codec) -> None:
        shapes = (_shape(one), _shape(other))
        if kind is JsonKind.OBJECT and shapes[0] is not None and shapes[1] is not None:
            self._tags |= shapes[0].shared_tags(shapes[1])
            is_apart = shapes[0].is_apart_from(shapes[1])
            advice = 'give both a field such as `kind: Literal["…"]` with different values'
        else:
            is_apart = _differ(one, other)
            advice = "use one of them, or dataclasses with different fields that hold them"
        if not is_apart:
            raise Unsupported(
                f"{one.name} and {other.name} cannot be told apart in JSON: either may be"
                f" {with_article(kind)}",
                advice,
            )

    def encode(self, value: Any) -> Any:
        exact = [member for member in self._members if member.is_type_of(value)]
        return self._first(
            exact or self._members,
            lambda member: member.encode(value),
            refusal=lambda: self.refuse(value),
        )

    def decode(self, value: Any) -> Any:
        kind = kind_of(value)
        fitting = [member for member in self._members if kind in member.kinds]
        if kind is JsonKind.OBJECT and self._tags:
            fitting = [member for member in fitting if self._has_tags(member, value)]
        return self._first(
            fitting, lambda member: member.decode(value), refusal=lambda: self.refuse_json(value)
        )

    def _has_tags(self, member: Codec, value: dict[str, Any]) -> bool:
        shape = _shape(_target(member))
        if shape is None:
            return True
        return all(
            (type(value.get(name)), value.get(name)) in shape.tags[name]
            for name in self._tags & shape.tags.keys()
            if isinstance(value.get(name), str | int | bool | None)
        )

    @staticmethod
    def _first(
        members: Sequence[Codec],
        convert: Callable[[Codec], Any],
        *,
        refusal: Callable[[], Mismatch],
    ) -> Any:
        """The first conversion that works; the error of a single member says more."""
        for member in members:
            try:
                return convert(member)
            except Mismatch:
                if len(members) == 1:
                    raise
        raise refusal()

    def refuse_json(self, value: Any) -> Mismatch:
        kind = kind_of(value)
        if kind in self.kinds:
            tags = ", ".join(sorted(self._tags)) if kind is JsonKind.OBJECT else ""
            by = f" (the field {tags} says which)" if tags else ""
            return Mismatch(f"expected {self.name}, got {with_article(kind)} that fits none{by}")
        return super().refuse_json(value)


def _differ(one: Codec, other: Codec) -> bool:
    """Whether no JSON value of one is a JSON value of the other."""
    if one.choices is not None:
        return not any(map(other.decodes, one.choices))
    if other.choices is not None:
        return not any(map(one.decodes, other.choices))
    formats = {one.text_format, other.text_format}
    return None not in formats and len(formats) == 2


def _target(codec: Codec) -> Codec:
    return codec.target if isinstance(codec, RecursiveCodec) else codec


def _shape(codec: Codec) -> RecordShape | None:
    return codec.shape if isinstance(codec, RecordCodec | ModelCodec) else None
