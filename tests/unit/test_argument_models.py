"""Pydantic models and msgspec structs as arguments, validated by their libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultline.errors import InvalidInput
from tests.unit.argument_codec import (
    definition_refusal_of,
    json_refusal_of,
    refusal_of,
    rich,
    round_trip,
    text_of,
    value_of,
)

T = TypeVar("T")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Line(pydantic.BaseModel):
    price: Decimal
    count: Annotated[int, pydantic.Field(gt=0)] = 1


class Invoice(pydantic.BaseModel):
    when: datetime
    lines: list[Line]
    tags: set[str] = set()
    _cache: int = pydantic.PrivateAttr(default=0)


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    when: datetime
    raw: Decimal


class Aliased(pydantic.BaseModel):
    when: datetime = pydantic.Field(alias="At")


class TwoAliases(pydantic.BaseModel):
    number: int = pydantic.Field(validation_alias="in", serialization_alias="out")


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.number


class Days(pydantic.RootModel[list[datetime]]): ...


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


class Outer(pydantic.BaseModel):
    logins: list[Login]


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Member(pydantic.BaseModel, frozen=True):
    n: int


class Nested(pydantic.BaseModel):
    members: set[Member]
    by_name: dict[str, Invoice]
    both: list[tuple[set[int]]] = pydantic.Field(alias="Both")


class Thing: ...


class WithThing(msgspec.Struct):
    thing: Thing


class AnyThing(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    thing: Thing


class Row(msgspec.Struct):
    id: UUID
    at: datetime
    price: Decimal
    raw: bytes = b""
    tags: set[str] = set()


class Circle(msgspec.Struct, tag="circle"):
    size: int


class Square(msgspec.Struct, tag="square"):
    size: int


class Pair(msgspec.Struct, array_like=True):
    first: int
    second: Decimal


class Cell(msgspec.Struct, Generic[T]):
    item: T


SOME_ID = UUID("0190a5f2-7c3e-7f00-8000-000000000001")
INVOICE = Invoice(when=NOON, lines=[Line(price=Decimal("1.10"))], tags={"b", "a"})
ROW = Row(SOME_ID, NOON, Decimal("1.10"), b"\x00", {"b", "a"})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Invoice, INVOICE),
        (Strict, Strict(when=NOON, raw=Decimal(1))),
        (Aliased, Aliased(At=NOON)),
        (Computed, Computed(number=1)),
        (Days, Days([NOON])),
        (Box[datetime], Box[datetime](item=NOON)),
        (Cat | Dog, Dog(name="rex")),
        (list[Cat | None], [Cat(name="tom"), None]),
        (Row, ROW),
        (Circle | Square | None, Square(1)),
        (Pair, Pair(1, Decimal(2))),
        (Cell[datetime], Cell(NOON)),
        (dict[str, Row | None], {"a": ROW}),
    ],
)
def test_a_model_comes_back_equal(annotation: Any, value: Any) -> None:
    back = round_trip(annotation, value)
    assert back == value
    assert type(back) is type(value)


@given(
    st.builds(
        Invoice,
        when=st.datetimes(timezones=st.just(UTC)),
        lines=st.lists(st.builds(Line, price=st.decimals(allow_nan=False, allow_infinity=False))),
        tags=st.sets(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))),
    )
)
def test_every_model_comes_back_equal(invoice: Invoice) -> None:
    assert round_trip(Invoice, invoice) == invoice


def test_models_are_stored_as_their_libraries_write_them() -> None:
    assert text_of(Invoice, INVOICE) == (
        '{"x":{"when":"2026-01-31T12:00:00Z","lines":[{"price":"1.10","count":1}],'
        '"tags":["a","b"]}}'
    )
    assert text_of(Aliased, Aliased(At=NOON)) == '{"x":{"At":"2026-01-31T12:00:00Z"}}'
    assert text_of(Row, ROW) == (
        f'{{"x":{{"id":"{SOME_ID}","at":"2026-01-31T12:00:00Z","price":"1.10","raw":"AA==",'
        '"tags":["a","b"]}}'
    )
    assert text_of(Circle | Square, Square(1)) == '{"x":{"type":"square","size":1}}'


def test_a_refusal_has_the_path_to_the_field() -> None:
    stored = {"when": "2026-01-31T12:00:00Z", "lines": [{"price": "1"}, {"price": "a"}]}
    assert json_refusal_of(Invoice, stored).startswith("x.lines[1].price: Input should be a valid")
    assert json_refusal_of(Invoice, {"lines": []}) == "x.when: Field required"
    assert json_refusal_of(Line, {"price": "1", "count": 0}) == (
        "x.count: Input should be greater than 0"
    )
    assert json_refusal_of(Strict, {"when": 1, "raw": "1"}).startswith("x.when: Input should be")
    row = {"id": str(SOME_ID), "at": "a", "price": "1"}
    assert json_refusal_of(list[Row], [row]) == "x[0].at: invalid RFC3339 encoded datetime"
    assert json_refusal_of(Circle | Square, {"type": "circle", "size": "1"}) == (
        "x.size: expected `int`, got `str`"
    )
    assert json_refusal_of(Circle | Square, {"size": 1}).endswith("(the field type says which)")
    assert json_refusal_of(Row, {}) == "x: object missing required field `id`"


def test_a_model_that_is_not_valid_is_refused_when_it_is_enqueued() -> None:
    changed = Line(price=Decimal(1))
    changed.count = 0
    assert refusal_of(Line, changed) == "x.count: Input should be greater than 0"
    made = Line.model_construct(price="secret")
    assert refusal_of(Line, made) == (
        "x: a field of Line does not have its type; was it changed after validation?"
    )
    wrong: Any = "one"
    assert refusal_of(Circle, Circle(wrong)) == "x.size: expected `int`, got `str`"
    assert refusal_of(Line, {"price": "1"}) == "x: expected Line, got dict"


def test_a_model_whose_json_it_would_not_accept_is_refused_when_it_is_enqueued() -> None:
    assert refusal_of(TwoAliases, TwoAliases.model_validate({"in": 1})) == "x.in: Field required"


def test_a_model_with_a_secret_is_refused_because_pydantic_hides_it() -> None:
    for model in (Login, Outer, list[Login]):
        assert "has a secret, which pydantic writes as asterisks" in definition_refusal_of(model)


def test_models_that_look_alike_are_refused_in_a_union() -> None:
    for union in (Invoice | Row, Line | Invoice, Row | Circle):
        assert 'give both a field such as `kind: Literal["…"]`' in definition_refusal_of(union)


def test_a_field_that_the_library_cannot_write_is_refused() -> None:
    assert definition_refusal_of(WithThing).startswith("WithThing: type <class ")
    assert refusal_of(AnyThing, AnyThing(thing=Thing())).startswith(
        "x: PydanticSerializationError: Unable to serialize unknown type: "
    )
    assert definition_refusal_of(pydantic.HttpUrl).endswith("(make it a field of a pydantic model)")


def test_a_model_may_name_classes_that_are_defined_later() -> None:
    class Early(msgspec.Struct):
        late: Late

    class Model(pydantic.BaseModel):
        late: Late

    structs, models = rich(Early), rich(Model)

    class Late(pydantic.BaseModel):
        when: datetime

    Model.model_rebuild(_types_namespace={"Late": Late})
    arguments = {"x": Model(late=Late(when=NOON))}
    assert models.decode(models.encode(arguments)) == arguments
    with pytest.raises(InvalidInput, match="its argument x cannot be resolved: NameError"):
        structs.encode({"x": None})


def test_sets_of_models_and_sets_in_models_are_sorted() -> None:
    value = Nested(members={Member(n=2), Member(n=1)}, by_name={"a": INVOICE}, Both=[({3, 1},)])
    text = text_of(Nested, value)
    assert '"members":[{"n":1},{"n":2}]' in text
    assert '"tags":["a","b"]' in text
    assert '"Both":[[[1,3]]]' in text
    assert round_trip(Nested, value) == value


def test_private_attributes_are_not_sent() -> None:
    invoice = INVOICE.model_copy()
    invoice._cache = 7
    assert round_trip(Invoice, invoice)._cache == 0


def test_sets_are_stored_alike_by_processes_that_hash_strings_differently() -> None:
    program = (
        "from tests.unit.test_argument_models import *\n"
        "tags = set('abcdefgh')\n"
        "print(text_of(set[str], tags))\n"
        "print(text_of(Invoice, INVOICE.model_copy(update={'tags': tags})))\n"
        "print(text_of(Row, Row(SOME_ID, NOON, Decimal(1), tags=tags)))\n"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1
    assert texts.pop().count(b'["a","b","c","d","e","f","g","h"]') == 3


def test_neither_library_is_imported_for_other_arguments() -> None:
    program = (
        "import sys, datetime, dataclasses, faultline\n"
        "app = faultline.Faultline('postgresql:///x')\n"
        "@dataclasses.dataclass\n"
        "class Order: at: datetime.datetime\n"
        "@app.task(name='t')\n"
        "def task(job, order: Order): ...\n"
        "print(*{'pydantic', 'msgspec'} & sys.modules.keys())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("", "")


def test_a_pydantic_strict_model_reads_the_strings_of_json() -> None:
    assert value_of(Strict, '{"x":{"when":"2026-01-31T12:00:00Z","raw":"1"}}').when == NOON
