"""Checks and encodes what is stored with a job: names, keys, payloads and results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn

import orjson

from faultline.errors import InvalidInput, PayloadTooLarge
from faultline.wording import with_article

MAX_BYTES = 1024 * 1024
# The limit of the payload as PostgreSQL writes it: 1e308 becomes 309 digits.
MAX_TEXT_BYTES = 8 * 1024 * 1024
_LONGEST_FLOAT = 330  # characters of a float as PostgreSQL writes it; JSON has at least 2
MAX_DEPTH = 64
MAX_KEY_LENGTH = 255

_TASK_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}\Z")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}\Z")
TAG = "[A-Za-z0-9_][A-Za-z0-9_.:=/@+-]{0,99}"
_TAG = re.compile(rf"{TAG}\Z")
MAX_TAGS = 20


def decode_payload(text: str) -> Any:
    """Decode a stored payload; other SQL clients may have stored what we would refuse."""
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the payload cannot be read by Python: {error}") from None


class DuplicateKey(ValueError):
    """A JSON object has one name twice; parsers disagree on which value counts."""


def parse_json(text: str | bytes) -> Any:
    """Parse a client's JSON without any loss; raises ValueError, or DuplicateKey.

    orjson is not used: it keeps the last of two equal names and rounds integers of more than 64 bits.
    """
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise DuplicateKey(f"an object has the name {twice[:80]!r} twice")
    return found


def decode_json(text: str | bytes) -> Any:
    """Decode with orjson, or with the json module if orjson refuses (1e400)."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def decode_stored(text: str | bytes) -> Any:
    """Decode JSON for display; works for all values that PostgreSQL accepts.

    PostgreSQL's numbers reach 10^131072: one that Python refuses becomes a string of digits. Its values
    nest thousands of levels deep: for one that is too deep the text itself is returned.
    """
    try:
        return decode_json(text)
    except RecursionError:
        return text if isinstance(text, str) else text.decode()
    except ValueError:
        return json.loads(text, parse_int=_number)


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) < 4300 else digits


def encode_payload(payload: Mapping[str, Any]) -> str:
    """The payload as JSON text; raises InvalidInput with the place of the error."""
    if not isinstance(payload, Mapping):
        raise InvalidInput("a payload must be an object of arguments by name")
    return encode_json(dict(payload), what="payload")


def encode_payloads(payloads: Sequence[Mapping[str, Any]]) -> str:
    """The payloads as the text of a JSON array; raises what `encode_payload` raises.

    Flat payloads are encoded together, which takes half the time. If the array is within the limit of one
    payload, each payload is: PostgreSQL writes integers as they are, and a space for a comma or a colon.
    """
    if all(map(_is_flat, payloads)):
        try:
            encoded = orjson.dumps(payloads)
        except TypeError:  # an integer of more than 64 bits
            pass
        else:
            if len(encoded) <= MAX_BYTES:
                return encoded.decode()
    return f"[{','.join([encode_payload(payload) for payload in payloads])}]"


def _is_flat(payload: Mapping[str, Any]) -> bool:
    """Whether it is a dict of harmless names and values.

    The code of _is_harmless, inlined.
    """
    if type(payload) is not dict:
        return False
    for key, value in payload.items():
        if type(key) is not str or not key.isascii() or "\x00" in key:
            return False
        kind = type(value)
        if kind is str:
            if not value.isascii() or "\x00" in value:
                return False
        elif kind is not int and kind is not bool and value is not None:
            return False
    return True


def encode_json(value: Any, *, what: str) -> str:
    _check(value, what, depth=1)
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from error
    if len(encoded) > MAX_BYTES:
        raise PayloadTooLarge(
            f"{what} is {len(encoded):,} bytes of JSON; the limit is {MAX_BYTES:,}",
            hint="store the data elsewhere and put its key in the job",
        )
    if len(encoded) * _LONGEST_FLOAT // 2 > MAX_TEXT_BYTES:
        text_bytes = len(encoded) + _extra_in_text(value)
        if text_bytes > MAX_TEXT_BYTES:
            raise PayloadTooLarge(
                f"{what} is {text_bytes:,} bytes as PostgreSQL writes it; the limit is"
                f" {MAX_TEXT_BYTES:,}",
                hint="PostgreSQL writes numbers without an exponent: send very large or very small"
                " ones as strings",
            )
    return encoded.decode()


def _extra_in_text(value: Any) -> int:
    """How many bytes longer PostgreSQL's text of the value is than our JSON.

    PostgreSQL writes a space after every comma and colon, and numbers without exponents.
    """
    match value:
        case float():
            if value == 0 or 1e-4 <= abs(value) < 1e15:  # orjson writes no exponent either
                return 0
            return len(format(Decimal(repr(value)), "f")) - len(orjson.dumps(value))
        case dict():
            blanks = max(0, 2 * len(value) - 1)
            return blanks + sum(map(_extra_in_text, value.values()))
        case list() | tuple():
            return max(0, len(value) - 1) + sum(map(_extra_in_text, value))
    return 0


def _check(value: Any, where: str, *, depth: int) -> None:
    """Refuse values that PostgreSQL would refuse later, or return changed."""
    if depth > MAX_DEPTH:
        raise InvalidInput(f"{where.split('.')[0]} is nested more than {MAX_DEPTH} levels deep")
    match value:
        case None | bool() | int():
            pass
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                raise InvalidInput(
                    f"{where} is {value}, which JSON cannot hold",
                    hint="send None, or a string that the handler understands",
                )
        case str():
            _check_text(value, where)
        case dict():
            for key, item in value.items():
                if type(key) is str and _is_harmless(key) and _is_harmless(item):
                    continue  # the common case; computing `where` would cost more than the check
                if type(key) is not str:
                    raise InvalidInput(f"{where} has the key {key!r:.80}; JSON keys are strings")
                _check_text(key, f"a key of {where}")
                _check(item, f"{where}.{key:.80}", depth=depth + 1)
        case list() | tuple() if type(value) in (list, tuple):
            for position, item in enumerate(value):
                _check(item, f"{where}[{position}]", depth=depth + 1)
        case _:
            raise InvalidInput(
                f"{where} is {with_article(type(value).__name__)}, which JSON cannot hold",
                hint="pass strings, numbers, booleans, None, lists and dicts",
            )


def _is_harmless(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return value.isascii() and "\x00" not in value
    return kind is int or kind is bool or value is None


def _check_text(text: str, where: str) -> None:
    if "\x00" in text:
        raise InvalidInput(f"{where} contains a NUL character, which PostgreSQL cannot store")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{where} contains a lone surrogate: {error.reason}") from error


def check_task_name(name: str) -> str:
    if not isinstance(name, str) or not _TASK_NAME.match(name):
        raise InvalidInput(
            f"{str(name)[:80]!r} is not a task name",
            hint="use 1 to 200 letters, digits, _ . : -, starting with a letter or _",
        )
    return name


def check_queue_name(name: str) -> str:
    if not isinstance(name, str) or not _QUEUE_NAME.match(name):
        raise InvalidInput(
            f"{str(name)[:80]!r} is not a queue name",
            hint="use 1 to 63 letters, digits, _ . : -, starting with a letter, digit or _",
        )
    return name


def check_tag(tag: str) -> str:
    if not isinstance(tag, str) or not _TAG.match(tag):
        raise InvalidInput(
            f"{str(tag)[:80]!r} is not a tag",
            hint="use 1 to 100 letters, digits, _ . : = / @ + -, starting with a letter, digit or _",
        )
    return tag


def checked_tags(tags: Iterable[str]) -> tuple[str, ...] | None:
    """The tags as they are stored: sorted, each once, and None if there are none."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidInput(
            f"tags must be a list of words, not {with_article(type(tags).__name__)}",
            hint='tags=["import", "customer:42"]',
        )
    found = {check_tag(tag) for tag in tags}
    if len(found) > MAX_TAGS:
        raise InvalidInput(f"a job has at most {MAX_TAGS} tags, not {len(found)}")
    return tuple(sorted(found)) or None


def check_idempotency_key(key: str) -> str:
    if not isinstance(key, str):
        raise InvalidInput(
            f"an idempotency key must be a string, not {with_article(type(key).__name__)}"
        )
    _check_text(key, "the idempotency key")
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput(
            f"the idempotency key has {len(key)} characters, but must have 1 to {MAX_KEY_LENGTH}"
        )
    return key


def check_priority(priority: int) -> int:
    if type(priority) is not int or not 0 <= priority <= 9:
        raise InvalidInput(f"priority must be 0 (first) to 9 (last), not {priority}")
    return priority


def check_max_attempts(max_attempts: int) -> int:
    if type(max_attempts) is not int or not 1 <= max_attempts <= 1000:
        raise InvalidInput(f"max_attempts must be 1 to 1000, not {max_attempts}")
    return max_attempts
