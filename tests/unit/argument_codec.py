"""The codec of a handler with one argument, `x`, of a given annotation."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from faultline.arguments import ArgumentCodec
from faultline.errors import InvalidInput
from faultline.payload import decode_payload, encode_payload


def codec_of(annotation: Any) -> ArgumentCodec | None:
    """The codec of a handler with one argument; None if there is nothing to convert."""

    def handler(job: Any, x: Any) -> None: ...

    handler.__annotations__["x"] = annotation
    codec = ArgumentCodec("shop.charge", handler, inspect.signature(handler))
    return None if codec.is_plain else codec


def rich(annotation: Any) -> ArgumentCodec:
    codec = codec_of(annotation)
    assert codec is not None
    return codec


def text_of(annotation: Any, value: Any) -> str:
    """The value as it is stored: a payload of JSON text."""
    return encode_payload(rich(annotation).encode({"x": value}))


def value_of(annotation: Any, text: str) -> Any:
    return rich(annotation).decode(decode_payload(text))["x"]


def round_trip(annotation: Any, value: Any) -> Any:
    return value_of(annotation, text_of(annotation, value))


def refusal_of(annotation: Any, value: Any) -> str:
    """What `enqueue` says to a value that does not fit."""
    with pytest.raises(InvalidInput) as raised:
        rich(annotation).encode({"x": value})
    prefix, _, message = raised.value.message.partition("cannot enqueue shop.charge: ")
    assert prefix == ""
    return message


def json_refusal_of(annotation: Any, value: Any) -> str:
    """Why an attempt fails whose stored argument does not fit."""
    with pytest.raises(InvalidInput) as raised:
        rich(annotation).decode({"x": value})
    prefix, _, message = raised.value.message.partition("the payload does not fit shop.charge: ")
    assert prefix == ""
    return message


def definition_refusal_of(annotation: Any) -> str:
    with pytest.raises(InvalidInput) as raised:
        codec_of(annotation)
    prefix, _, message = str(raised.value).partition(
        "shop.charge: its argument x cannot be stored: "
    )
    assert prefix == ""
    return message
