"""Annotations are resolved when a task is defined, or else at its first use."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import pytest

from faultline.arguments import ArgumentCodec
from faultline.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import time


def codec_for(handler: Callable[..., Any]) -> ArgumentCodec | None:
    codec = ArgumentCodec("shop.charge", handler, inspect.signature(handler))
    return None if codec.is_plain else codec


def rich(handler: Callable[..., Any]) -> ArgumentCodec:
    codec = codec_for(handler)
    assert codec is not None
    return codec


def by_day(job: Any, day: date, count: int = 1, *, note: str | None = None) -> None: ...
def plain(job: UnknownJob, number: int, *, rest: Any = None, none=None) -> Unknown: ...  # type: ignore # noqa
def of_later(job: Any, order: Later) -> None: ...
def of_never(job: Any, number: int, at: time) -> None: ...
def plain_later(job: Any, number: PlainLater) -> None: ...
def of_others(job: Any, day: date, **others: Decimal) -> None: ...
def of_other_days(job: Any, **days: date) -> None: ...


class Options(TypedDict, total=False):
    since: date
    limit: int


def of_options(job: Any, **options: Unpack[Options]) -> None: ...


@dataclass
class Later:
    day: date


PlainLater = int


def test_the_job_and_the_result_are_not_resolved() -> None:
    assert codec_for(plain) is None


def test_every_argument_of_a_task_with_rich_arguments_is_checked() -> None:
    codec = rich(by_day)
    arguments = {"day": date.min, "count": 2, "note": None}
    encoded = codec.encode(arguments)
    assert encoded == {"day": "0001-01-01", "count": 2, "note": None}
    assert codec.decode(encoded) == arguments
    with pytest.raises(InvalidInput, match=r"shop\.charge: count: expected int, got str"):
        codec.encode({"day": date.min, "count": "2"})


def test_a_class_may_be_defined_after_the_handler() -> None:
    later = sys.modules[__name__].__dict__.pop("Later")
    try:
        codec = rich(of_later)
        with pytest.raises(InvalidInput) as raised:
            codec.encode({"order": later(date.min)})
        assert raised.value.message == (
            "shop.charge: the annotation of its argument order cannot be resolved:"
            " NameError: name 'Later' is not defined"
        )
        assert raised.value.hint == (
            "import the class at the top of the handler's module, not under TYPE_CHECKING or inside"
            " a function"
        )
    finally:
        sys.modules[__name__].__dict__["Later"] = later
    assert codec.decode(codec.encode({"order": later(date.min)})) == {"order": later(date.min)}


def test_plain_arguments_that_are_resolved_late_are_not_checked_either() -> None:
    found = sys.modules[__name__].__dict__.pop("PlainLater")
    try:
        codec = rich(plain_later)
    finally:
        sys.modules[__name__].__dict__["PlainLater"] = found
    assert codec.encode({"number": "one"}) == {"number": "one"}
    assert codec.decode({"number": "one"}) == {"number": "one"}


def test_an_annotation_that_is_never_resolved_is_an_error_that_names_the_argument() -> None:
    codec = rich(of_never)
    for convert in (codec.encode, codec.decode):
        with pytest.raises(InvalidInput, match="its argument at cannot be resolved: NameError"):
            convert({"number": 1})


def test_classes_of_the_function_that_defines_the_handler_are_found() -> None:
    @dataclass
    class Part:
        day: date

    @dataclass
    class Order:
        parts: list[Part]

    def define() -> ArgumentCodec:
        return rich(handler)

    def handler(job: Any, order: Order) -> None: ...

    order = Order([Part(date.min)])
    codec = define()
    assert codec.encode({"order": order}) == {"order": {"parts": [{"day": "0001-01-01"}]}}
    assert codec.decode(codec.encode({"order": order})) == {"order": order}


def test_wrapped_and_partial_handlers_have_the_annotations_of_their_function() -> None:
    @functools.wraps(by_day)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    for handler in (wrapper, functools.partial(by_day, count=2)):
        assert rich(handler).encode({"day": date.min}) == {"day": "0001-01-01"}


def test_an_object_with_a_call_method_can_be_a_handler() -> None:
    class Handler:
        def __call__(self, job: Any, day: date) -> None: ...

    assert rich(Handler()).encode({"day": date.min}) == {"day": "0001-01-01"}


def test_keywords_without_a_name_have_the_annotation_of_the_rest() -> None:
    codec = rich(of_others)
    arguments = {"day": date.min, "price": Decimal("1.0")}
    assert codec.encode(arguments) == {"day": "0001-01-01", "price": "1.0"}
    assert codec.decode(codec.encode(arguments)) == arguments
    assert rich(of_other_days).encode({"first": date.min}) == {"first": "0001-01-01"}
    assert rich(of_options).encode({"since": date.min}) == {"since": "0001-01-01"}


def test_a_value_that_contains_itself_is_refused() -> None:
    @dataclass
    class Node:
        day: date
        next: Node | None = None

    def handler(job: Any, node: Node) -> None: ...

    node = Node(date.min)
    node.next = node
    with pytest.raises(InvalidInput, match=r"cannot enqueue shop\.charge: node is nested too deep"):
        rich(handler).encode({"node": node})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type` is new in Python 3.12")
def test_type_aliases_may_contain_themselves() -> None:
    scope: dict[str, Any] = {}
    exec(  # noqa: S102
        "from datetime import date\n"
        "type Json = dict[str, Json] | list[Json] | str | int | None\n"
        "type Days[T] = list[T] | dict[str, Days[T]]\n"
        "def plain(job, value: Json): ...\n"
        "def rich(job, value: Days[date]): ...\n",
        scope,
    )
    assert codec_for(scope["plain"]) is None
    arguments = {"value": {"a": {"b": [date.min]}}}
    codec = rich(scope["rich"])
    assert codec.encode(arguments) == {"value": {"a": {"b": ["0001-01-01"]}}}
    assert codec.decode(codec.encode(arguments)) == arguments
