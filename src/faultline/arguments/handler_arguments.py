"""Encodes and decodes the arguments of one handler by its annotations."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

from faultline.arguments.annotations import CodecFinder, Unresolved, resolve
from faultline.arguments.codec import Codec, Mismatch, Unsupported, is_plain_throughout
from faultline.arguments.scalars import AnyJson
from faultline.errors import InvalidInput
from faultline.handler_errors import name_of, text_of

_MAX_FRAMES = 32
_MAX_MESSAGE = 1_000


class ArgumentCodec:
    """Converts a payload of arguments by name, with the same checks at both ends.

    An annotation may name a class that is defined later. Then the codecs are found at the first use.
    """

    def __init__(
        self, task: str, handler: Callable[..., Any], signature: inspect.Signature
    ) -> None:
        self._task = task
        self._function = _function_of(handler)
        self._parameters = list(signature.parameters.values())[1:]  # the first is the job
        self._codecs: Mapping[str, Codec] | None = None
        self._other: Codec = AnyJson()  # for names that only **kwargs accepts
        self.is_plain = False  # whether all arguments are JSON as they are: nothing is converted
        self._find_codecs(_defining_locals(self._function), is_definition=True)

    def encode(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON values; InvalidInput if one does not fit its annotation."""
        codecs = self._find_codecs({}) if self._codecs is None else self._codecs
        if self.is_plain:
            return dict(arguments)
        encoded, name = {}, ""
        try:
            for name, value in arguments.items():
                encoded[name] = codecs.get(name, self._other).encode(value)
        except Exception as error:
            raise _refusal(f"cannot enqueue {self._task}", name, error) from None
        return encoded

    def decode(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The handler's arguments from a stored payload, which any client may have sent."""
        codecs = self._find_codecs({}) if self._codecs is None else self._codecs
        return dict(payload) if self.is_plain else self._decode(payload, codecs)

    def check(self, payload: Mapping[str, Any]) -> None:
        """Refuse a stored payload that does not fit, plain types included."""
        self._decode(payload, self._find_codecs({}) if self._codecs is None else self._codecs)

    def _decode(self, payload: Mapping[str, Any], codecs: Mapping[str, Codec]) -> dict[str, Any]:
        decoded, name = {}, ""
        try:
            for name, value in payload.items():
                decoded[name] = codecs.get(name, self._other).decode(value)
        except Exception as error:
            raise _refusal(f"the payload does not fit {self._task}", name, error) from None
        return decoded

    def _find_codecs(
        self, localns: Mapping[str, Any], *, is_definition: bool = False
    ) -> Mapping[str, Codec]:
        finder = CodecFinder(localns)
        codecs: dict[str, Codec] = {}
        other: Codec = AnyJson()
        for parameter in self._parameters:
            try:
                found = self._annotation(parameter, localns)
                if parameter.kind is not parameter.VAR_KEYWORD:
                    codecs[parameter.name] = finder.find(found)
                elif typing.get_origin(found) is typing.Unpack:
                    hints = finder.typed_dict_hints(typing.get_args(found)[0])
                    codecs |= {name: finder.find(hint) for name, hint in hints.items()}
                else:
                    other = finder.find(found)
            except Unresolved as error:
                if is_definition:
                    return {}
                raise InvalidInput(
                    f"{self._task}: the annotation of its argument {parameter.name} cannot be"
                    f" resolved: {error}",
                    hint="import the class at the top of the handler's module, not under"
                    " TYPE_CHECKING or inside a function",
                ) from None
            except Unsupported as error:
                raise InvalidInput(
                    f"{self._task}: its argument {parameter.name} cannot be stored:"
                    f" {error.message}",
                    hint=error.hint,
                ) from None
        self.is_plain = all(map(is_plain_throughout, (*codecs.values(), other)))
        self._other, self._codecs = other, codecs
        return codecs

    def _annotation(self, parameter: inspect.Parameter, localns: Mapping[str, Any]) -> Any:
        if parameter.annotation is parameter.empty:
            return Any
        try:
            return resolve(
                parameter.annotation, getattr(self._function, "__globals__", {}), localns
            )
        except SyntaxError:
            raise Unsupported(
                f"its annotation {str(parameter.annotation)[:80]!r} is no Python expression",
                "annotate it with a type",
            ) from None


def _refusal(what: str, name: str, error: Exception) -> InvalidInput:
    if isinstance(error, Mismatch):
        return InvalidInput(f"{what}: {name}{error.path}: {error.message[:_MAX_MESSAGE]}")
    if isinstance(error, RecursionError):
        return InvalidInput(f"{what}: {name} is nested too deep")
    return InvalidInput(f"{what}: {name}: {name_of(error)}: {text_of(error)[:_MAX_MESSAGE]}")


def _function_of(handler: Any) -> Any:
    """The function that has the annotations, without its wrappers."""
    handler = inspect.unwrap(handler)
    while isinstance(handler, functools.partial):
        handler = inspect.unwrap(handler.func)
    return handler if hasattr(handler, "__globals__") else type(handler).__call__


def _defining_locals(function: Any) -> Mapping[str, Any]:
    """The local names where the handler is being defined, as in a test.

    The function that defines a handler has the handler's code among its constants.
    """
    code = getattr(function, "__code__", None)
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if any(constant is code for constant in frame.f_code.co_consts):
            return dict(frame.f_locals)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return {}
