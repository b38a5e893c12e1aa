"""The signature of a handler, and arguments that do not fit it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import pytest

import faultline
from faultline import Faultline, Job
from faultline.errors import InvalidInput

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]

AnyJob = TypeVar("AnyJob", bound=Job)


class MyJob(Job):
    """A job of an application's own tests."""


class HasToken(Protocol):
    token: int


@pytest.fixture
def app() -> Faultline:
    return Faultline("postgresql://127.0.0.1:1/never-asked")


def without_the_job(x: int) -> None: ...
def of_a_list(items: list[int], limit: int = 3) -> None: ...
def of_a_text(text: str) -> None: ...


@pytest.mark.parametrize(
    ("handler", "hint"),
    [
        (without_the_job, "def without_the_job(job: faultline.Job, x: int)"),
        (of_a_list, "def of_a_list(job: faultline.Job, items: list[int], …)"),
        (of_a_text, "def of_a_text(job: faultline.Job, text: str)"),
    ],
)
def test_a_handler_without_the_job_is_refused_where_it_is_defined(
    app: Faultline, handler: Callable[..., Any], hint: str
) -> None:
    with pytest.raises(InvalidInput, match="must take the job as its first argument") as refused:
        app.task(handler)
    assert refused.value.hint == hint
    assert not app.tasks


def unannotated(job, x: int) -> None: ...  # type: ignore[no-untyped-def]
def plain(job: Job, x: int) -> None: ...
def dotted(job: faultline.Job, x: int) -> None: ...
def own(job: MyJob, x: int) -> None: ...
def optional(job: Job | None, x: int) -> None: ...
def anything(job: Any, x: int) -> None: ...
def an_object(job: object, x: int) -> None: ...
def generic(job: AnyJob, x: int) -> None: ...
def annotated(job: Annotated[Job, "the job"], x: int) -> None: ...
def protocol(job: HasToken, x: int) -> None: ...
def unresolved(job: Unknown, x: int) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        *(unannotated, plain, dotted, own, optional, anything),
        *(an_object, generic, annotated, protocol, unresolved),
    ],
    ids=lambda handler: handler.__name__,
)
def test_a_first_argument_that_may_be_a_job_is_accepted(
    app: Faultline, handler: Callable[..., Any]
) -> None:
    app.task(handler)
    assert len(app.tasks) == 1


def charge(job: Job, invoice: int, memo: str = "") -> None: ...
def nothing(job: Job) -> None: ...


@pytest.mark.parametrize(
    ("handler", "given", "says", "hint"),
    [
        (charge, {"invoce": 1}, "it has no argument 'invoce'", "did you mean invoice?"),
        (charge, {"xyz": 1}, "it has no argument 'xyz'", "it takes invoice, memo"),
        (charge, {"invoice": 1, "mmo": ""}, "it has no argument 'mmo'", "did you mean memo?"),
        (charge, {}, "missing a required argument: 'invoice'", None),
        (nothing, {"x": 1}, "it has no argument 'x'", "it takes no arguments"),
    ],
)
def test_a_mistyped_argument_is_named_before_the_missing_one(
    app: Faultline, handler: Callable[..., Any], given: dict[str, Any], says: str, hint: str | None
) -> None:
    task = app.task(handler)
    with pytest.raises(InvalidInput) as refused:
        task.job(**given)
    assert (refused.value.message, refused.value.hint) == (
        f"cannot enqueue {task.name}: {says}",
        hint,
    )
    with pytest.raises(InvalidInput) as stored:
        task.arguments(json.dumps(given))
    assert stored.value.message == f"the payload does not fit {task.name}: {says}"
    assert stored.value.hint == hint
