"""Codecs of pydantic models and msgspec structs, which validate themselves.

Neither library is imported here: the class of a model has the methods, and a program that has a struct has
imported msgspec.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import orjson

from faultline.arguments.codec import ANY_KIND, Codec, JsonKind, Mismatch, Unsupported
from faultline.arguments.containers import sort_items
from faultline.arguments.records import RecordShape
from faultline.handler_errors import name_of, text_of


class ModelCodec(Codec):
    """A value of a class whose library writes and validates its JSON."""

    kinds = frozenset({JsonKind.OBJECT})
    shape: RecordShape | None

    def __init__(self, python_type: Any, annotation: Any) -> None:
        self.name = python_type.__name__
        self._type = python_type
        self._annotation = annotation

    def is_type_of(self, value: Any) -> bool:
        return type(value) is self._type

    def encode(self, value: Any) -> Any:
        if type(value) is not self._type:  # a subclass may have fields that would be lost
            raise self.refuse(value)
        encoded = self._translated(self._write, value)
        self.decode(encoded)  # a model can be changed after it was validated, or use two aliases
        return encoded

    def decode(self, value: Any) -> Any:
        return self._translated(self._read, value)

    def _write(self, value: Any) -> Any:
        raise NotImplementedError  # each library of models has its own

    def _read(self, value: Any) -> Any:
        raise NotImplementedError  # each library of models has its own

    def _explain(self, error: Exception) -> Mismatch:
        return Mismatch(f"{name_of(error)}: {text_of(error)}")

    def _translated(self, convert: Callable[[Any], Any], value: Any) -> Any:
        try:
            return convert(value)
        except Exception as error:  # validators are the user's
            raise self._explain(error) from error


class PydanticCodec(ModelCodec):
    def __init__(self, python_type: Any, annotation: Any) -> None:
        super().__init__(python_type, annotation)
        self.shape = None
        if python_type.__pydantic_root_model__:
            self.kinds = ANY_KIND
        else:
            self.shape = _pydantic_shape(python_type)
        schema = _schema_of(python_type)
        if any(part.get("writeOnly") for part in _objects(schema)):
            raise Unsupported(
                f"{self.name} has a secret, which pydantic writes as asterisks",
                "pass a key by which the handler finds the secret",
            )
        self._has_sets = schema is None or any(part.get("uniqueItems") for part in _objects(schema))

    def _write(self, value: Any) -> Any:
        written = value.model_dump(mode="json", by_alias=True, round_trip=True, warnings="error")
        return _sort_sets(written, value) if self._has_sets else written

    def _read(self, value: Any) -> Any:
        # As JSON: a strict model takes a datetime from a string of JSON, not from a string of Python.
        return self._type.model_validate_json(orjson.dumps(value))

    def _explain(self, error: Exception) -> Mismatch:
        unsupported = text_of(error).startswith("Unable to serialize unknown type")
        if name_of(error) == "PydanticSerializationError" and not unsupported:
            return Mismatch(  # the message of pydantic has the values
                f"a field of {self.name} does not have its type; was it changed after validation?"
            )
        details: Any = getattr(error, "errors", None)
        if details is None:
            return super()._explain(error)
        first = details(include_url=False, include_context=False, include_input=False)[0]
        mismatch = Mismatch(first["msg"])
        for place in reversed(first["loc"]):
            if isinstance(place, int):
                mismatch.add_step(f"[{place}]")
            else:
                mismatch.add_key(place)
        return mismatch


def _pydantic_shape(model: Any) -> RecordShape:
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    literals = {name: _literal_values(info.annotation) for name, info in fields.items()}
    return RecordShape(
        required=frozenset(name for name, info in fields.items() if info.is_required()),
        allowed=frozenset(fields) if model.model_config.get("extra") == "forbid" else None,
        tags={name: values for name, values in literals.items() if values is not None},
    )


def _literal_values(annotation: Any) -> frozenset[tuple[type, Any]] | None:
    if get_origin(annotation) is not Literal:
        return None
    return frozenset((type(value), value) for value in get_args(annotation))


def _schema_of(model: Any) -> Any:
    """The JSON schema, or None if a type of the model has none."""
    try:
        return model.model_json_schema(mode="serialization")
    except Exception:  # pydantic raises several, also for a class that is not complete yet
        return None


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from _objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


def _sort_sets(written: Any, value: Any) -> Any:
    """Sort the arrays that are sets in Python: equal models have equal JSON."""
    if getattr(type(value), "__pydantic_root_model__", False):
        return _sort_sets(written, value.root)
    if isinstance(written, list) and isinstance(value, list | tuple | set | frozenset):
        if len(written) != len(value):  # by a serializer of the user's
            return written
        items = [_sort_sets(*pair) for pair in zip(written, value, strict=True)]
        return sort_items(items) if isinstance(value, set | frozenset) else items
    if not isinstance(written, dict):
        return written
    if isinstance(value, dict):
        parts = dict(zip(written, value.values(), strict=False))
    else:
        fields: dict[str, Any] = getattr(type(value), "model_fields", {})
        names: dict[str, str] = {
            info.serialization_alias or name: name for name, info in fields.items()
        }
        parts = {key: getattr(value, names.get(key, str(key)), None) for key in written}
    return {key: _sort_sets(item, parts.get(key)) for key, item in written.items()}


class StructCodec(ModelCodec):
    """A msgspec Struct; `msgspec.convert` is strict."""

    def __init__(self, python_type: Any, annotation: Any) -> None:
        super().__init__(python_type, annotation)
        self._msgspec: Any = sys.modules["msgspec"]
        config = python_type.__struct_config__
        self.shape = None
        try:
            self._msgspec.json.schema(annotation)
        except TypeError as error:  # a class that msgspec does not know
            raise Unsupported(
                f"{self.name}: {text_of(error).splitlines()[-1]} by msgspec",
                "use types that msgspec knows",
            ) from None
        if config.array_like:
            self.kinds = frozenset({JsonKind.ARRAY})
            return
        fields = self._msgspec.structs.fields(python_type)
        names = {field.encode_name for field in fields}
        tags = {}
        if config.tag_field is not None:
            names.add(config.tag_field)
            tags[config.tag_field] = frozenset({(type(config.tag), config.tag)})
        self.shape = RecordShape(
            required=frozenset(field.encode_name for field in fields if field.required),
            allowed=frozenset(names) if config.forbid_unknown_fields else None,
            tags=tags,
        )

    def _write(self, value: Any) -> Any:
        return self._msgspec.to_builtins(value, str_keys=True, order="deterministic")

    def _read(self, value: Any) -> Any:
        return self._msgspec.convert(value, self._annotation, str_keys=True)

    def _explain(self, error: Exception) -> Mismatch:
        if not isinstance(error, self._msgspec.ValidationError):
            return super()._explain(error)
        message, _, place = text_of(error).partition(" - at `$")
        mismatch = Mismatch(message[:1].lower() + message[1:])
        mismatch.add_step(place.removesuffix("`"))
        return mismatch


_LIBRARIES: dict[tuple[str, str], type[ModelCodec]] = {
    ("pydantic", "BaseModel"): PydanticCodec,
    ("msgspec", "Struct"): StructCodec,
}


def model_codec(python_type: type, annotation: Any) -> ModelCodec | None:
    """The codec of a pydantic model or a msgspec Struct; None for other classes.

    The annotation is the class itself, or an alias such as `Page[int]` of a generic Struct.
    """
    for parent in python_type.__mro__[1:]:
        codec = _LIBRARIES.get((parent.__module__.partition(".")[0], parent.__name__))
        if codec is StructCodec or (codec is not None and hasattr(parent, "model_validate_json")):
            return codec(python_type, annotation)
    return None
