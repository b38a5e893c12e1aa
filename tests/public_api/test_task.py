"""Tasks are registered by name, with options; some handlers are refused."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from faultline import Faultline, InvalidInput, Job, RetryPolicy, Task, UnknownTask
from faultline.testing import run_one
from tests.enqueueing.test_enqueue import in_async
from tests.running import work_off


def at_the_top(job: Job) -> None: ...


def test_a_task_is_named_after_its_function(app: Faultline) -> None:
    def inner(job: Job) -> None: ...

    assert app.task()(at_the_top).name == f"{__name__}.at_the_top"
    assert app.task()(inner).name == f"{__name__}.test_a_task_is_named_after_its_function.inner"


def test_two_tasks_of_one_name_are_refused(app: Faultline) -> None:
    first = app.task(name="once")(at_the_top)
    with pytest.raises(InvalidInput, match="two tasks are named once") as caught:
        app.task(name="once")(lambda job: None)
    assert f"the first is the function {__name__}.at_the_top" in str(caught.value.hint)
    assert app.find_task("once") is first


@pytest.mark.parametrize("name", ["idempotency_key", "run_at", "priority", "queue", "conn"])
def test_an_argument_may_have_the_name_of_an_option(app: Faultline, name: str) -> None:
    scope: dict[str, Any] = {"__name__": __name__}
    exec(f"def handler(job, {name}): return {name}", scope)  # noqa: S102
    task = app.task(name="t")(scope["handler"])
    job_id = task.options(priority=1).enqueue(**{name: 7}).job_id
    assert work_off(app, job_id).result == 7


INNER_NAMES = ["job", "self", "function", "handler", "call", "task", "args", "kwargs"]


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("is_hooked", [False, True], ids=["plain", "hooked"])
def test_an_argument_may_have_a_name_that_faultline_uses_inside(
    app: Faultline, kind: str, is_hooked: bool
) -> None:
    def around(job: Job) -> Iterator[None]:
        yield

    if is_hooked:
        app.around_attempt(around)
    scope: dict[str, Any] = {}
    arguments = ", ".join(INNER_NAMES)
    exec(f"{kind} handler(ctx, {arguments}): return [{arguments}]", scope)  # noqa: S102
    task = app.task(name="t")(scope["handler"])
    given = {name: number for number, name in enumerate(INNER_NAMES)}
    by_name, by_position = task.enqueue(**given), task.enqueue(*given.values())
    many = app.enqueue_many([task.job(**given)])
    expected = list(given.values())
    for enqueued in (by_name, by_position, *many):
        attempted = run_one(app)
        assert attempted is not None
        assert (attempted.job_id, attempted.result) == (enqueued.job_id, expected)
    assert work_off(app, task.enqueue(**given).job_id).result == expected
    assert work_off(app, in_async(app, lambda: task.enqueue_async(**given)).job_id).result


def test_a_task_needs_no_parentheses(app: Faultline) -> None:
    @app.task
    def bare(job: Job, number: int) -> int:
        return number + 1

    assert bare.settings == app.task(name="other")(at_the_top).settings
    assert work_off(app, bare.enqueue(number=1).job_id).result == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"retry": 3}, r"retry must be a RetryPolicy, not an int \(max_attempts=3"),
        ({"retry": RetryPolicy}, "retry must be a RetryPolicy, not a type"),
        ({"retry": None}, "retry must be a RetryPolicy, not a NoneType"),
        ({"process": "yes"}, "process must be True or False, not a str"),
        ({"concurrency": "3"}, "concurrency must be a number or a Limit, not a str"),
        ({"rate": 3}, "rate must be a Rate, not an int"),
        ({"unique": "invoice"}, r"unique must be a faultline\.Unique, not a str"),
        ({"timeout": "30"}, "timeout must be seconds or a timedelta, not a str"),
        ({"lease": True}, "lease must be seconds or a timedelta, not a bool"),
        ({"max_attempts": "3"}, "max_attempts must be 1 to 1000, not 3"),
        ({"priority": None}, r"priority must be 0 \(first\) to 9 \(last\), not None"),
        ({"queue": None}, "'None' is not a queue name"),
    ],
    ids=str,
)
def test_a_setting_of_another_type_is_refused_where_the_task_is_defined(
    app: Faultline, option: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        app.task(name="t", **option)(at_the_top)


class Holder:
    def method(self, job: Job) -> None: ...
    @staticmethod
    def static(job: Job) -> None: ...
    @classmethod
    def of_class(cls, job: Job) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        Holder.method,
        Holder().method,
        Holder.static,
        Holder.of_class,
        vars(Holder)["static"],
        vars(Holder)["of_class"],
        functools.partial(at_the_top),
        Holder,
        "shop.charge",
    ],
)
def test_only_functions_can_be_tasks(app: Faultline, handler: Any) -> None:
    with pytest.raises(InvalidInput, match=r"method of a class|is a function|not a function"):
        app.task(handler)
    assert dict(app.tasks) == {}


def test_a_function_that_is_defined_again_replaces_the_former_one(app: Faultline) -> None:
    cell = "@app.task\ndef count(job, n): return n + {}"
    scope: dict[str, Any] = {"app": app, "__name__": __name__}
    for step in (1, 2):
        exec(cell.format(step), scope)  # noqa: S102 - as a notebook does
    assert list(app.tasks) == [f"{__name__}.count"]
    assert work_off(app, scope["count"].enqueue(n=1).job_id).result == 3


def make_task(app: Faultline, number: int, **options: Any) -> Task[[], int]:
    @app.task(**options)
    def made(job: Job) -> int:
        return number

    return made


def test_a_function_that_makes_tasks_must_name_each_of_them(app: Faultline) -> None:
    first = make_task(app, 1)
    with pytest.raises(InvalidInput, match=r"two tasks are named .*make_task\.made"):
        make_task(app, 2)
    assert app.find_task(first.name) is first
    one, two = make_task(app, 1, name="one"), make_task(app, 2, name="two")
    assert [work_off(app, task.enqueue().job_id).result for task in (one, two)] == [1, 2]


def logged(handler: Any) -> Any:
    @functools.wraps(handler)
    def wrapper(*args: Any) -> Any:
        return handler(*args)

    return wrapper


def test_a_decorated_function_that_is_defined_again_replaces_the_former_one(app: Faultline) -> None:
    scope: dict[str, Any] = {"app": app, "logged": logged, "__name__": __name__}
    for step in (1, 2):
        exec(f"@app.task\n@logged\ndef count(job): return {step}", scope)  # noqa: S102
    assert work_off(app, scope["count"].enqueue().job_id).result == 2


def test_one_function_may_be_registered_again(app: Faultline) -> None:
    app.task(at_the_top)
    assert app.task(priority=1)(at_the_top).settings.priority == 1


def generator(job: Job) -> Iterator[int]:
    yield 1


async def async_generator(job: Job) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [generator, async_generator])
def test_a_generator_function_is_refused(app: Faultline, handler: Any) -> None:
    with pytest.raises(InvalidInput, match="generator is a generator function"):
        app.task(handler)


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
    with pytest.raises(InvalidInput, match="a lambda has no name"):
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
    {"lease": 0},
    {"lease": -1},
    {"lease": "60"},
    {"timeout": timedelta(0)},
    {"timeout": True},
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
