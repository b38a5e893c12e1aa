"""Codecs of lists, tuples, sets and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from faultline.arguments.codec import Codec, JsonKind, Mismatch


class ArrayCodec(Codec):
    """A JSON array of equal items: a list, a tuple of any length, or a set."""

    kinds = frozenset({JsonKind.ARRAY})

    def __init__(
        self, name: str, item: Codec, *, accepts: tuple[type, ...], make: Callable[[Any], Any]
    ) -> None:
        self.name = name
        self.is_plain = make is list
        self._item = item
        self._accepts = accepts
        self._make = make
        self._is_unordered = issubclass(accepts[0], set | frozenset)

    def encode(self, value: Any) -> list[Any]:
        if not self.is_type_of(value):
            raise self.refuse(value)
        encoded = _each(self._item.encode, value)
        return sort_items(encoded) if self._is_unordered else encoded

    def decode(self, value: Any) -> Any:
        if type(value) is not list:
            raise self.refuse_json(value)
        try:
            return self._make(_each(self._item.decode, value))
        except TypeError:  # a set of values that are not hashable
            raise Mismatch(f"the items of a {self.name} must be hashable") from None

    def parts(self) -> Iterable[Codec]:
        return (self._item,)

    def is_type_of(self, value: Any) -> bool:
        return isinstance(value, self._accepts)


class TupleCodec(Codec):
    """A tuple of a fixed length, each item with its own annotation."""

    name = "tuple"
    kinds = frozenset({JsonKind.ARRAY})

    def __init__(self, items: tuple[Codec, ...]) -> None:
        self._items = items
        self.form = f"an array of {len(items)}"

    def encode(self, value: Any) -> list[Any]:
        if not isinstance(value, tuple):
            raise self.refuse(value)
        self._check_length(value)
        return [_at(n, self._items[n].encode, item) for n, item in enumerate(value)]

    def decode(self, value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise self.refuse_json(value)
        self._check_length(value)
        return tuple(_at(n, self._items[n].decode, item) for n, item in enumerate(value))

    def _check_length(self, value: tuple[Any, ...] | list[Any]) -> None:
        if len(value) != len(self._items):
            raise Mismatch(f"expected {len(self._items)} items, got {len(value):,}")

    def parts(self) -> Iterable[Codec]:
        return self._items

    def is_type_of(self, value: Any) -> bool:
        return type(value) is tuple


class DictCodec(Codec):
    """A JSON object of equal values; the keys are strings in JSON."""

    kinds = frozenset({JsonKind.OBJECT})
    is_plain = True

    def __init__(self, name: str, key: Codec, item: Codec, *, accepts: type) -> None:
        self.name = name
        self._key = key
        self._item = item
        self._accepts = accepts

    def encode(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, self._accepts):
            raise self.refuse(value)
        return self._convert(self._key.encode, self._item.encode, value)  # type: ignore[arg-type]

    def decode(self, value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise self.refuse_json(value)
        return self._convert(self._key.decode, self._item.decode, value)

    @staticmethod
    def _convert(
        convert_key: Callable[[Any], Any],
        convert_item: Callable[[Any], Any],
        value: Mapping[Any, Any],
    ) -> dict[Any, Any]:
        converted: dict[Any, Any] = {}
        for key, item in value.items():
            try:
                new = convert_key(key)
            except Mismatch as mismatch:
                mismatch.add_step(" has a key that does not fit")
                raise
            try:
                converted[new] = convert_item(item)
            except Mismatch as mismatch:
                mismatch.add_key(key)
                raise
        return converted

    def parts(self) -> Iterable[Codec]:
        return (self._key, self._item)

    def is_type_of(self, value: Any) -> bool:
        return isinstance(value, self._accepts)


def sort_items(items: list[Any]) -> list[Any]:
    """The JSON of equal sets is equal: an idempotency key compares payloads."""
    try:
        return sorted(items, key=lambda item: orjson.dumps(item, option=orjson.OPT_SORT_KEYS))
    except TypeError:  # not JSON: refused when the payload is encoded, with its path
        return items


def _each(convert: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    converted: list[Any] = []
    try:
        for item in items:
            converted.append(convert(item))  # noqa: PERF401 - the length says where it failed
    except Mismatch as mismatch:
        mismatch.add_step(f"[{len(converted)}]")
        raise
    return converted


def _at(position: int, convert: Callable[[Any], Any], item: Any) -> Any:
    try:
        return convert(item)
    except Mismatch as mismatch:
        mismatch.add_step(f"[{position}]")
        raise
