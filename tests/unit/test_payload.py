"""Payloads that are refused, each with the rule and the path to the value."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pytest

from faultline import payload
from faultline.errors import InvalidInput, PayloadTooLarge
from faultline.wording import with_article


def nested(levels: int) -> dict[str, Any]:
    """A payload of exactly so many levels; the innermost is the empty list."""
    value: Any = []
    for _ in range(levels - 2):
        value = [value]
    return {"a": value}


def refusal(value: Any) -> str:
    with pytest.raises(InvalidInput) as raised:
        payload.encode_payload(value)
    return raised.value.message


@pytest.mark.parametrize("value", [[1], "text", None, 7])
def test_a_payload_is_an_object(value: Any) -> None:
    assert refusal(value) == "a payload must be an object of arguments by name"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": ["ok", "x\x00y"]}}, "payload.a.b[1] contains a NUL character"),
        ({"a": {"x\x00y": 1}}, "a key of payload.a contains a NUL character"),
        ({"a": ["\ud800"]}, "payload.a[0] contains a lone surrogate"),
        ({"\udfff": 1}, "a key of payload contains a lone surrogate"),
        ({"a": float("nan")}, "payload.a is nan, which JSON cannot hold"),
        ({"a": [float("inf")]}, "payload.a[0] is inf, which JSON cannot hold"),
        ({"a": [float("-inf")]}, "payload.a[0] is -inf, which JSON cannot hold"),
        ({"a": {1: 2}}, "payload.a has the key 1; JSON keys are strings"),
        ({"a": {None: 2}}, "payload.a has the key None; JSON keys are strings"),
    ],
)
def test_a_value_that_json_or_postgresql_cannot_store_is_refused_with_its_path(
    value: dict[str, Any], message: str
) -> None:
    assert refusal(value).startswith(message)


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        datetime.date(2020, 1, 1),
        uuid.UUID(int=0),
        decimal.Decimal(1),
        {1},
        b"x",
        object(),
        complex(1),
        len,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_named_and_not_converted(value: Any) -> None:
    message = refusal({"a": [value]})

    assert (
        message == f"payload.a[0] is {with_article(type(value).__name__)}, which JSON cannot hold"
    )


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_an_integer_beyond_64_bits_is_refused(number: int) -> None:
    assert "64-bit" in refusal({"a": number})


def test_64_levels_are_stored_and_one_more_is_refused() -> None:
    payload.encode_payload(nested(64))

    assert refusal(nested(65)) == "payload is nested more than 64 levels deep"


def test_a_payload_100_levels_deep_is_refused() -> None:
    assert refusal(nested(100)) == "payload is nested more than 64 levels deep"


def test_a_payload_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert refusal({"a": endless}) == "payload is nested more than 64 levels deep"


def test_a_payload_of_one_byte_too_many_is_refused_with_both_sizes() -> None:
    frame = len('{"a":""}')
    payload.encode_payload({"a": "x" * (payload.MAX_BYTES - frame)})

    with pytest.raises(PayloadTooLarge) as raised:
        payload.encode_payload({"a": "x" * (payload.MAX_BYTES - frame + 1)})

    assert raised.value.message == "payload is 1,048,577 bytes of JSON; the limit is 1,048,576"
    assert raised.value.hint is not None


def test_the_size_is_counted_in_bytes_and_not_in_characters() -> None:
    with pytest.raises(PayloadTooLarge):
        payload.encode_payload({"a": "€" * (payload.MAX_BYTES // 2)})


def test_a_number_that_json_has_not_is_refused_with_what_to_send() -> None:
    with pytest.raises(InvalidInput) as refused:
        payload.encode_payload({"a": float("nan")})
    assert refused.value.hint == "send None, or a string that the handler understands"


TOGETHER: dict[str, list[Any]] = {
    "none": [],
    "flat": [{"a": 1, "b": "x", "c": True, "d": None}, {}, {"a": -1}],
    "nested": [{"a": 1}, {"a": [1.5, {"b": "é"}]}],
    "more than one payload may have": [{"a": "x" * 600_000}, {"a": "x" * 600_000}],
}


@pytest.mark.parametrize("values", TOGETHER.values(), ids=TOGETHER)
def test_payloads_encoded_together_are_those_encoded_one_by_one(values: list[Any]) -> None:
    one_by_one = ",".join(payload.encode_payload(value) for value in values)
    assert payload.encode_payloads(values) == f"[{one_by_one}]"


@pytest.mark.parametrize(
    "wrong",
    [{"a": "x\x00"}, {"x\x00": 1}, {"\udfff": 1}, {"a": 2**64}, {"a": float("nan")}, {1: 2}, [1]],
    ids=repr,
)
def test_a_wrong_payload_among_others_is_refused_as_it_is_alone(wrong: Any) -> None:
    with pytest.raises(InvalidInput) as raised:
        payload.encode_payloads([{"a": 1}, wrong])
    assert raised.value.message == refusal(wrong)


def test_a_payload_of_one_byte_too_many_among_others_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        payload.encode_payloads([{"a": 1}, {"a": "x" * payload.MAX_BYTES}])
