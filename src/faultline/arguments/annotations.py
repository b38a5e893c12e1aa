"""Finds the codec of an annotation."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from faultline.arguments.codec import Codec, JsonKind, RecursiveCodec, Unsupported
from faultline.arguments.containers import ArrayCodec, DictCodec, TupleCodec
from faultline.arguments.models import model_codec
from faultline.arguments.records import ObjectCodec, RecordCodec, RecordShape, TypedDictCodec
from faultline.arguments.scalars import AnyJson, ChoiceCodec, FloatCodec, JsonScalar, enum_codec
from faultline.arguments.texts import text_codec
from faultline.arguments.unions import UnionCodec

_SCALARS: dict[Any, Callable[[], Codec]] = {
    Any: AnyJson,
    object: AnyJson,
    None: lambda: JsonScalar(type(None), JsonKind.NULL),
    type(None): lambda: JsonScalar(type(None), JsonKind.NULL),
    bool: lambda: JsonScalar(bool, JsonKind.BOOLEAN),
    int: lambda: JsonScalar(int, JsonKind.NUMBER),
    float: FloatCodec,
    str: lambda: JsonScalar(str, JsonKind.STRING),
    typing.LiteralString: lambda: JsonScalar(str, JsonKind.STRING),
}
# What `isinstance` accepts when a job is enqueued, and what the handler gets.
_ARRAYS: dict[Any, tuple[tuple[type, ...], type]] = {
    list: ((list,), list),
    tuple: ((tuple,), tuple),
    set: ((set,), set),
    frozenset: ((frozenset,), frozenset),
    abc.Sequence: ((list, tuple), list),
    abc.MutableSequence: ((list,), list),
    abc.Collection: ((list, tuple), list),
    abc.Iterable: ((list, tuple), list),
    abc.Set: ((set, frozenset), set),
    abc.MutableSet: ((set,), set),
}
_DICTS: dict[Any, type] = {
    dict: dict,
    abc.Mapping: abc.Mapping,
    abc.MutableMapping: abc.MutableMapping,
}
_FIELD_MARKS = {"Required": True, "NotRequired": False, "ReadOnly": None}
_BUILD_IT = (
    "pass what identifies it, such as an id or a path, and let the handler build it;"
    " or use a dataclass"
)


class Unresolved(Exception):
    """An annotation has a name that is not defined, or not yet."""


def resolve(annotation: Any, globalns: Mapping[str, Any], localns: Mapping[str, Any]) -> Any:
    """The annotation without strings; raises Unresolved, or SyntaxError."""
    holder = types.SimpleNamespace(__annotations__={"argument": annotation})
    try:
        hints = typing.get_type_hints(holder, dict(globalns), dict(localns), include_extras=True)
    except SyntaxError:
        raise
    except Exception as error:  # NameError, AttributeError of a half-imported module, …
        raise Unresolved(f"{type(error).__name__}: {error}") from error
    return hints["argument"]


class CodecFinder:
    """Finds the codecs of one handler's annotations; raises Unsupported, Unresolved.

    `localns` has the names of the function in which the handler is defined, if there is one.
    """

    def __init__(self, localns: Mapping[str, Any]) -> None:
        self._localns = localns
        self._records: dict[Any, RecordCodec] = {}
        self._aliases: dict[Any, RecursiveCodec] = {}
        self._unions: list[UnionCodec] = []

    def find(self, annotation: Any) -> Codec:
        codec = self._codec(annotation)
        for union in self._unions:
            union.settle()
        self._unions.clear()
        return codec

    def typed_dict_hints(self, python_type: Any) -> dict[str, Any]:
        """The annotations of a TypedDict's fields, for `**kwargs: Unpack[…]`."""
        return {name: _field_mark(hint)[0] for name, hint in self._hints(python_type).items()}

    def _codec(self, annotation: Any) -> Codec:
        if _is_hashable(annotation) and annotation in _SCALARS:
            return _SCALARS[annotation]()
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self._codec(args[0])
        if isinstance(annotation, typing.NewType):
            return self._codec(annotation.__supertype__)
        if _is_type_alias(origin or annotation):
            return self._alias(annotation, origin, args)
        if origin is typing.Union or origin is types.UnionType:
            union = UnionCodec([self._codec(member) for member in args])
            self._unions.append(union)
            return union
        if origin is typing.Literal:
            return self._literal(args)
        if isinstance(annotation, str | typing.ForwardRef):
            raise Unresolved(f"{annotation} is not resolved")
        if isinstance(annotation, typing.TypeVar):
            raise Unsupported(
                f"{annotation.__name__} is a type variable", "give the type that it has here"
            )
        return self._container(annotation, origin or annotation, args) or self._class(
            annotation, origin or annotation, args
        )

    def _alias(self, annotation: Any, origin: Any, args: tuple[Any, ...]) -> Codec:
        known = self._aliases.get(annotation)
        if known is not None:
            return known
        recursive = self._aliases[annotation] = RecursiveCodec(str(annotation))
        try:
            value = (origin or annotation).__value__
        except Exception as error:  # it is evaluated only now
            raise Unresolved(f"{type(error).__name__}: {error}") from error
        recursive.target = self._codec(value[args] if args else value)
        recursive.name = recursive.target.name
        return recursive

    def _literal(self, values: tuple[Any, ...]) -> Codec:
        pairs = []
        for value in values:
            if isinstance(value, Enum):
                pairs.append((value, enum_codec(type(value)).encode(value)))
            elif type(value) in (str, int, bool, type(None)):
                pairs.append((value, value))
            else:
                raise Unsupported(
                    f"Literal[{value!r}] cannot be stored as JSON", "use strings or numbers"
                )
        return ChoiceCodec(f"Literal[{', '.join(repr(value) for value in values)}]"[:200], pairs)

    def _container(self, annotation: Any, origin: Any, args: tuple[Any, ...]) -> Codec | None:
        if not _is_hashable(origin):
            return None
        if origin in _DICTS:
            key, item = args or (str, Any)
            return self._dict(_name_of(origin), key, item, _DICTS[origin])
        if origin not in _ARRAYS:
            return None
        is_bare = annotation in (tuple, typing.Tuple)  # noqa: UP006 - it is still written
        if origin is tuple and not is_bare and args[-1:] != (Ellipsis,):
            return TupleCodec(tuple(self._codec(item) for item in args))
        accepts, made = _ARRAYS[origin]
        item = self._codec(args[0] if args else Any)
        return ArrayCodec(_name_of(origin), item, accepts=accepts, make=made)

    def _dict(self, name: str, key: Any, item: Any, accepts: type) -> Codec:
        keys = self._codec(key)
        if isinstance(keys, AnyJson):
            keys = self._codec(str)
        if keys.kinds != {JsonKind.STRING}:
            raise Unsupported(
                f"the keys of {name}[{keys.name}, …] are no strings in JSON",
                "use str keys, or a list of tuples",
            )
        return DictCodec(name, keys, self._codec(item), accepts=accepts)

    def _class(self, annotation: Any, python_type: Any, args: tuple[Any, ...]) -> Codec:
        if not isinstance(python_type, type):
            raise Unsupported(
                f"{typing.get_origin(annotation) or annotation!r} cannot be stored as JSON"[:200],
                _BUILD_IT,
            )
        if (text := text_codec(python_type)) is not None:
            return text
        if issubclass(python_type, Enum):
            return enum_codec(python_type)
        try:
            if (model := model_codec(python_type, annotation)) is not None:
                return model
        except NameError as error:  # a class that is defined later
            raise Unresolved(f"NameError: {error}") from error
        for is_one, record in (
            (dataclasses.is_dataclass, self._dataclass),
            (_is_named_tuple, self._named_tuple),
            (_is_typed_dict, self._typed_dict),
        ):
            if is_one(python_type):
                known = self._records.get(annotation)
                return known if known is not None else record(annotation, python_type, args)
        is_pydantic = python_type.__module__.partition(".")[0] == "pydantic"
        raise Unsupported(
            f"a {python_type.__module__}.{python_type.__qualname__} cannot be stored as JSON",
            "make it a field of a pydantic model" if is_pydantic else _BUILD_IT,
        )

    def _dataclass(self, annotation: Any, python_type: Any, args: tuple[Any, ...]) -> Codec:
        hints = self._hints(python_type)
        for name, hint in hints.items():
            if hint is dataclasses.InitVar or isinstance(hint, dataclasses.InitVar):
                raise Unsupported(
                    f"{python_type.__name__}.{name} is an InitVar, whose value is not kept",
                    "make it a field",
                )
        fields = [field for field in dataclasses.fields(python_type) if field.init]
        required = {
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        }
        annotations = {field.name: hints[field.name] for field in fields}
        return self._record(ObjectCodec, annotation, python_type, args, annotations, required)

    def _named_tuple(self, annotation: Any, python_type: Any, args: tuple[Any, ...]) -> Codec:
        hints = self._hints(python_type)
        annotations = {name: hints.get(name, Any) for name in python_type._fields}
        required = annotations.keys() - python_type._field_defaults.keys()
        return self._record(ObjectCodec, annotation, python_type, args, annotations, required)

    def _typed_dict(self, annotation: Any, python_type: Any, args: tuple[Any, ...]) -> Codec:
        annotations, required = {}, set(python_type.__required_keys__)
        for name, hint in self._hints(python_type).items():
            # __required_keys__ does not know what a string annotation says.
            annotations[name], is_required = _field_mark(hint)
            if is_required is not None:
                (required.add if is_required else required.discard)(name)
        return self._record(TypedDictCodec, annotation, python_type, args, annotations, required)

    def _record(
        self,
        codec: type[RecordCodec],
        annotation: Any,
        python_type: Any,
        args: tuple[Any, ...],
        annotations: Mapping[str, Any],
        required: abc.Set[str],
    ) -> Codec:
        name = python_type.__name__
        shape = RecordShape(required=frozenset(required), allowed=frozenset(annotations))
        record = self._records[annotation] = codec(name, python_type, shape)
        known = _type_arguments(python_type, args)
        fields = {}
        for field, hint in annotations.items():
            try:
                fields[field] = self._codec(
                    _substitute(hint, known.get(_owner(python_type, field, known), {}))
                )
            except Unsupported as error:
                raise Unsupported(f"{name}.{field}: {error.message}", error.hint) from None
        record.set_fields(fields)
        return record

    def _hints(self, python_type: Any) -> dict[str, Any]:
        try:
            return typing.get_type_hints(python_type, include_extras=True)
        except NameError:
            pass
        except Exception as error:
            raise Unresolved(f"{type(error).__name__}: {error}") from error
        try:
            return typing.get_type_hints(
                python_type, localns=dict(self._localns), include_extras=True
            )
        except Exception as error:
            raise Unresolved(f"{type(error).__name__}: {error}") from error


def _type_arguments(python_type: Any, args: tuple[Any, ...]) -> dict[Any, dict[Any, Any]]:
    """The values of the type variables of a class and of each of its bases."""
    own = dict(zip(getattr(python_type, "__parameters__", ()), args, strict=False))
    found = {python_type: own}
    for base in vars(python_type).get("__orig_bases__", python_type.__bases__):
        origin = typing.get_origin(base) or base
        if origin not in (typing.Generic, typing.Protocol, object) and isinstance(origin, type):
            given = tuple(_substitute(argument, own) for argument in typing.get_args(base))
            found = _type_arguments(origin, given) | found
    return found


def _owner(python_type: Any, field: str, classes: abc.Sized) -> Any:
    """The class whose annotation of the field counts: the first that has one."""
    for owner in python_type.__mro__ if len(classes) > 1 else ():
        if field in inspect.get_annotations(owner):
            return owner
    return python_type


def _substitute(hint: Any, known: Mapping[Any, Any]) -> Any:
    """Replace the type variables of a generic class by its arguments."""
    if isinstance(hint, typing.TypeVar):
        return known.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not known or not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(known.get(parameter, parameter) for parameter in parameters)]


def _field_mark(hint: Any) -> tuple[Any, bool | None]:
    """A TypedDict's annotation without its marks, and whether they say it is required."""
    is_required = None
    while True:
        origin = typing.get_origin(hint)
        mark = getattr(origin, "__name__", getattr(origin, "_name", None))
        if origin is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif mark in _FIELD_MARKS and not isinstance(origin, type):
            hint = typing.get_args(hint)[0]
            is_required = _FIELD_MARKS[mark] if is_required is None else is_required
        else:
            return hint, is_required


def _is_hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None and not isinstance(value, tuple)


def _is_type_alias(value: Any) -> bool:
    return type(value).__name__ == "TypeAliasType"


def _is_named_tuple(value: type) -> bool:
    return issubclass(value, tuple) and hasattr(value, "_fields")


def _is_typed_dict(value: type) -> bool:
    return issubclass(value, dict) and hasattr(value, "__required_keys__")


def _name_of(origin: Any) -> str:
    return str(getattr(origin, "__name__", origin))
