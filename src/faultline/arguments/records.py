"""Codecs of values with named fields: dataclasses, NamedTuples and TypedDicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faultline.arguments.codec import Codec, JsonKind, Mismatch
from faultline.handler_errors import name_of, text_of


@dataclass(slots=True)
class RecordShape:
    """What tells the JSON objects of one record from those of another."""

    required: frozenset[str]
    allowed: frozenset[str] | None  # None: other fields are ignored
    # Fields that hold one of a few values, such as `kind: Literal["card"]`: (type, value) of each.
    tags: Mapping[str, frozenset[tuple[type, Any]]] = field(default_factory=dict)

    def is_apart_from(self, other: RecordShape) -> bool:
        return (
            bool(self.shared_tags(other))
            or _needs_more_than(self, other)
            or _needs_more_than(other, self)
        )

    def shared_tags(self, other: RecordShape) -> set[str]:
        """The fields whose values never agree with those of the other record."""
        shared = self.tags.keys() & other.tags.keys()
        return {name for name in shared if self.tags[name].isdisjoint(other.tags[name])}


def _needs_more_than(one: RecordShape, other: RecordShape) -> bool:
    return other.allowed is not None and not one.required <= other.allowed


class RecordCodec(Codec):
    """The fields of a record are set after it: a field may contain the record."""

    kinds = frozenset({JsonKind.OBJECT})
    fields: Mapping[str, Codec]

    def __init__(self, name: str, python_type: Any, shape: RecordShape) -> None:
        self.name = name
        self.shape = shape
        self._type = python_type

    def set_fields(self, fields: Mapping[str, Codec]) -> None:
        self.fields = fields
        self.shape.tags = {
            name: frozenset((type(choice), choice) for choice in codec.choices)
            for name, codec in fields.items()
            if codec.choices is not None
        }

    def parts(self) -> Iterable[Codec]:
        return self.fields.values()

    def _decode_fields(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise self.refuse_json(value)
        self._check_names(value)
        return {name: self._at(name, item, decode=True) for name, item in value.items()}

    def _at(self, name: str, item: Any, *, decode: bool = False) -> Any:
        try:
            codec = self.fields[name]
            return codec.decode(item) if decode else codec.encode(item)
        except Mismatch as mismatch:
            mismatch.add_key(name)
            raise

    def _check_names(self, value: Mapping[str, Any]) -> None:
        for name in sorted(self.shape.required - value.keys()):
            raise _misfit(name, "is missing")
        for name in value:
            if name not in self.fields:
                raise _misfit(name, f"is no field of {self.name}")


def _misfit(name: str, what: str) -> Mismatch:
    mismatch = Mismatch(what)
    mismatch.add_key(name)
    return mismatch


class ObjectCodec(RecordCodec):
    """A dataclass or a NamedTuple: an object of its fields, made by its constructor."""

    def encode(self, value: Any) -> dict[str, Any]:
        if type(value) is not self._type:  # a subclass may have fields that would be lost
            raise self.refuse(value)
        return {name: self._at(name, getattr(value, name)) for name in self.fields}

    def decode(self, value: Any) -> Any:
        fields = self._decode_fields(value)
        try:
            return self._type(**fields)
        except Exception as error:  # __post_init__ is the user's
            raise Mismatch(f"{name_of(error)}: {text_of(error)}") from error

    def is_type_of(self, value: Any) -> bool:
        return type(value) is self._type


class TypedDictCodec(RecordCodec):
    is_plain = True

    def encode(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refuse(value)
        self._check_names(value)
        return {name: self._at(name, item) for name, item in value.items()}

    def decode(self, value: Any) -> dict[str, Any]:
        return self._decode_fields(value)

    def is_type_of(self, value: Any) -> bool:
        return isinstance(value, dict)
