"""Page cursors: the sort key of a page's last row as opaque text for the client."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from faultline.errors import InvalidInput

LONGEST = 500


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(value)
    return moment


def _number(value: Any) -> int:
    if type(value) is not int or abs(value) > 2**53:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(value)
    return value


_READ: dict[type, Callable[[Any], Any]] = {
    datetime: _moment,
    UUID: UUID,
    int: _number,
    str: _text,
}


def encode(order: str, key: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([order, *key])).decode().rstrip("=")


def decode(text: str, order: str, types: Sequence[type]) -> tuple[Any, ...]:
    """Decode the sort key; InvalidInput for a cursor of another list or a forged one."""
    try:
        padded = text[:LONGEST] + "=" * (-len(text[:LONGEST]) % 4)
        made_for, *values = orjson.loads(base64.urlsafe_b64decode(padded))
        if made_for == order:
            pairs = zip(types, values, strict=True)
            return tuple(_READ[each](value) for each, value in pairs)
    except (ValueError, TypeError, AttributeError, binascii.Error):
        pass
    raise InvalidInput(
        "this cursor does not belong to this list",
        hint="send `next` of the previous page, with the same filters",
    )
