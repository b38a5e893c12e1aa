"""The result of a job: which value it is, how it is encoded, what is not stored.

The result is `job.result` if the handler set it, else the value that the handler returned. It is stored
with the commit: a value that the handler returns, or sets, after it has committed the job itself cannot
be stored any more. `discarded` finds such a value, so that the worker can report it.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from faultline.errors import InvalidInput
from faultline.handler_errors import name_of, text_of
from faultline.payload import decode_json, encode_json

ADVICE = "set job.result before job.transaction() ends, or pass result= to job.commit()"


def encode_result(value: Any) -> str | None:
    """The JSON text to store, None for no result; raises InvalidInput."""
    if value is None:
        return None
    if type(value) is CoroutineType:
        raise InvalidInput(
            "the handler returned a coroutine that nothing awaits, so its work is not done",
            hint="a decorator of an async def handler must be async def too, and await the handler",
        )
    try:
        return encode_json(value, what="the result")
    except InvalidInput:
        raise
    except Exception as error:  # the methods of the value are the user's code
        raise InvalidInput(
            f"the result cannot be encoded: {name_of(error)}: {text_of(error)}"
        ) from None


def result_of(own: Any, returned: Any) -> Any:
    """The result of a handler that set `own` as job.result and returned `returned`."""
    return returned if own is None else own


def discarded(stored: str | None, *, own: Any, returned: Any) -> str | None:
    """Describe a value of the handler that differs from the stored result, or None."""
    if returned is not None and not _equals(stored, returned):
        return f"the handler returned a {type(returned).__name__}"
    if own is not None and own is not returned and not _equals(stored, own):
        return f"the handler changed job.result to a {type(own).__name__} after the commit"
    return None


def _equals(stored: str | None, value: Any) -> bool:
    try:
        text = encode_result(value)
    except InvalidInput:
        return False
    if text is None or stored is None:
        return text is stored
    return text == stored or bool(decode_json(text) == decode_json(stored))
