"""Tasks are registered by name, with options; some handlers are refused."""

from __future__ import annotations

from typing import Any

import pytest

from faultline import Faultline, InvalidInput, Job, UnknownTask
from tests.running import work_off


def at_the_top(job: Job) -> None: ...


def test_a_task_is_named_after_its_function(app: Faultline) -> None:
    def inner(job: Job) -> None: ...

    assert app.task()(at_the_top).name == f"{__name__}.at_the_top"
    assert app.task()(inner).name == f"{__name__}.test_a_task_is_named_after_its_function.inner"


def test_two_tasks_of_one_name_are_refused(app: Faultline) -> None:
    first = app.task(name="once")(at_the_top)
    with pytest.raises(InvalidInput, match="two tasks are named once"):
        app.task(name="once")(lambda job: None)
    assert app.find_task("once") is first


@pytest.mark.parametrize("name", ["idempotency_key", "run_at", "priority", "queue", "conn"])
def test_argument_names_that_enqueue_needs_are_refused(app: Faultline, name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def handler(job, {name}): ...", scope)  # noqa: S102
    with pytest.raises(InvalidInput, match=f"the argument name {name} is reserved for enqueue"):
        app.task(name="t")(scope["handler"])
    assert dict(app.tasks) == {}


def no_argument() -> None: ...
def only_by_name(*, job: Job) -> None: ...
def any_arguments(*args: Any) -> None: ...
def more_arguments(job: Job, *more: Any) -> None: ...
def by_position(job: Job, there: int, /) -> None: ...


@pytest.mark.parametrize(
    "handler", [no_argument, only_by_name, any_arguments, more_arguments, by_position]
)
def test_a_handler_that_cannot_be_called_by_name_is_refused(app: Faultline, handler: Any) -> None:
    with pytest.raises(InvalidInput, match=str(handler.__name__)):
        app.task()(handler)
    assert dict(app.tasks) == {}


def test_a_lambda_needs_a_name(app: Faultline) -> None:
    with pytest.raises(InvalidInput, match="is not a task name"):
        app.task()(lambda job: None)
    assert app.task(name="short")(lambda job: None).name == "short"


@pytest.mark.parametrize("name", ["a b", "1a", "a\n", "x" * 201, "é", "a;", "a\x00", "%s", "-a"])
def test_a_task_name_that_the_database_would_refuse_is_refused_early(
    app: Faultline, name: str
) -> None:
    with pytest.raises(InvalidInput, match="is not a task name"):
        app.task(name=name)(at_the_top)


OPTIONS: list[dict[str, Any]] = [
    {"queue": "a b"},
    {"priority": 10},
    {"priority": -1},
    {"max_attempts": 0},
    {"max_attempts": 1001},
    {"max_attempts": 2.5},
    {"lease_seconds": 0},
    {"lease_seconds": -1},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_an_option_out_of_range_is_refused(app: Faultline, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        app.task(**options)(at_the_top)


def test_arguments_by_keyword_alone_and_any_keywords_reach_the_handler(app: Faultline) -> None:
    @app.task()
    async def collect(job: Job, /, first: int, *, second: int = 2, **rest: Any) -> list[Any]:
        return [first, second, rest]

    record = work_off(app, collect.enqueue(1, third=3, args=4).job_id)
    assert record.result == [1, 2, {"third": 3, "args": 4}]


def test_a_task_can_be_called_like_its_handler(app: Faultline) -> None:
    @app.task()
    def double(job: Any, number: int) -> int:
        return 2 * number

    assert double(None, 21) == 42  # type: ignore[arg-type]


def test_an_unknown_task_is_an_error_that_names_the_known_ones(app: Faultline) -> None:
    app.task(name="known")(at_the_top)
    with pytest.raises(UnknownTask, match=r"no task is named 'other' .*known"):
        app.find_task("other")


def test_the_registry_cannot_be_changed_from_outside(app: Faultline) -> None:
    with pytest.raises(TypeError):
        app.tasks["sneaky"] = None  # type: ignore[index]
