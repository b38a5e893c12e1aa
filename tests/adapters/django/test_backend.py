"""The backend for `django.tasks`: what Django demands of one, and the fence."""

from __future__ import annotations

import asyncio
import importlib
from datetime import datetime, timedelta
from typing import Any

import pytest

from faultline import InvalidInput, InvalidSettings
from faultline.testing import Outcome, ZombieEffect, advance, run_until_idle
from tests.adapters.django.conftest import Shop
from tests.adapters.django.test_enqueue import stored, undone


@pytest.fixture
def functions(shop: Shop) -> Any:
    return importlib.import_module("tests.adapters.django.shop.functions")


@pytest.fixture
def library(shop: Shop) -> Any:
    return importlib.import_module("faultline.adapters.django.task_library")


def run(shop: Shop, *, raise_errors: bool = True) -> list[Any]:
    return run_until_idle(shop.app, raise_errors=raise_errors)


# ── enqueueing ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["add", "add_on_a_loop"])
def test_a_new_result_is_ready_and_is_found_by_its_id(
    shop: Shop, functions: Any, library: Any, name: str
) -> None:
    task = getattr(functions, name)
    result = task.enqueue(1, two=3)
    assert (result.status, result.is_finished, result.attempts) == ("READY", False, 0)
    assert (result.args, result.kwargs, result.backend) == ([1], {"two": 3}, "default")
    assert result.task == task
    assert result.enqueued_at is not None
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None,) * 3
    with pytest.raises(ValueError, match="has not finished"):
        _ = result.return_value
    assert task.get_result(result.id) == result
    assert library.library.default_task_backend.get_result(result.id) == result


def test_coroutines_enqueue_and_read_results(shop: Shop, functions: Any) -> None:
    async def main() -> None:
        result = await functions.add.aenqueue(1, 2)
        assert await functions.add.aget_result(result.id) == result
        await result.arefresh()
        assert result.status == "READY"

    asyncio.run(main())
    assert stored(shop) == 1


def test_a_task_exists_if_its_block_commits(shop: Shop, functions: Any) -> None:
    from asgiref.sync import async_to_sync
    from django.db import transaction

    with undone():
        functions.add.enqueue(1)
        async_to_sync(functions.add.aenqueue)(1)
    assert stored(shop) == 0
    with transaction.atomic():
        result = functions.add.enqueue(1)
        assert stored(shop) == 0
        assert functions.add.get_result(result.id) == result
    assert stored(shop) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue_name": "unknown"}, "Queue 'unknown' is not valid"),
        ({"queue_name": "two words", "backend": "archive"}, "two words"),
        ({"priority": 101}, "priority must be a whole number"),
        ({"run_after": datetime(2030, 1, 1)}, "run_after must be an aware"),  # noqa: DTZ001
    ],
)
def test_what_the_backend_cannot_do_is_refused_before_it_is_stored(
    shop: Shop, functions: Any, library: Any, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(library.InvalidTask, match=says):
        functions.add.using(**changes)
    assert stored(shop) == 0


def test_arguments_that_are_not_json_are_refused(shop: Shop, functions: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        functions.add.enqueue(datetime.now())  # noqa: DTZ005
    assert stored(shop) == 0


def test_a_function_that_workers_cannot_import_is_refused(functions: Any, library: Any) -> None:
    with pytest.raises(library.InvalidTask, match="module level"):
        functions.task()(lambda: None)


def test_a_deferred_task_waits_for_its_time(shop: Shop, functions: Any) -> None:
    from django.utils import timezone

    later = timezone.now() + timedelta(hours=1)
    deferred = functions.add.using(run_after=later).enqueue(1)
    assert run(shop) == []
    assert functions.add.get_result(deferred.id).task.run_after == later
    advance(shop.app, 3601)
    assert [str(each.job_id) for each in run(shop)] == [deferred.id]


def test_priorities_have_ten_steps(shop: Shop) -> None:
    from faultline.adapters.django.backend import faultline_priority

    steps = [faultline_priority(each) for each in range(-100, 101)]
    assert steps == sorted(steps, reverse=True)
    assert set(steps) == set(range(10))
    assert (steps[0], steps[100], steps[200]) == (9, 5, 0)


def test_a_priority_is_stored_and_found_again(shop: Shop, functions: Any) -> None:
    results = [functions.add.using(priority=each).enqueue(1) for each in (-100, 7, 100)]
    assert [shop.app.get(each.id).priority for each in results] == [9, 4, 0]
    assert [functions.add.get_result(each.id).task.priority for each in results] == [-100, 7, 100]


def test_a_queue_of_a_task_is_a_queue_of_faultline(shop: Shop, functions: Any) -> None:
    functions.mail.enqueue()
    assert run_until_idle(shop.app, queues=["default"]) == []
    [attempted] = run_until_idle(shop.app, queues=["mail"])
    assert attempted.outcome is Outcome.SUCCEEDED


# ── running ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["add", "add_on_a_loop"])
def test_a_finished_task_has_its_return_value(shop: Shop, functions: Any, name: str) -> None:
    result = getattr(functions, name).enqueue(1, two=3)
    run(shop)
    assert result.status == "READY"
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 4, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert len(result.worker_ids) == 1
    assert result.errors == []


@pytest.mark.parametrize(
    ("name", "args", "error", "says"),
    [
        ("fail", ["no: such: thing"], LookupError, "LookupError: no: such: thing\n"),
        ("leave", [], SystemExit, "SystemExit: left\n"),
        ("return_a_function", [], TypeError, "Unsupported type"),
    ],
)
def test_a_task_that_raises_has_failed_with_the_error_and_its_traceback(
    shop: Shop, functions: Any, name: str, args: list[Any], error: type[Exception], says: str
) -> None:
    result = getattr(functions, name).enqueue(*args)
    [attempted] = run(shop, raise_errors=False)
    assert attempted.outcome is Outcome.FAILED
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == ("FAILED", True, 1)
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    [found] = result.errors
    assert found.exception_class is error
    assert says in found.traceback
    assert found.traceback.startswith("Traceback")
    assert "TaskFailed" not in found.traceback


def test_a_backend_may_retry_errors(shop: Shop, functions: Any) -> None:
    result = functions.fail.using(backend="retrying").enqueue("no")
    [attempted] = run(shop, raise_errors=False)
    assert attempted.outcome is Outcome.RETRYING
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 1)
    advance(shop.app, 60)
    run(shop, raise_errors=False)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 2, 2)
    assert result.started_at < result.last_attempted_at
    assert {error.exception_class for error in result.errors} == {LookupError}


def test_a_task_that_an_operator_cancelled_has_failed_with_a_reason(
    shop: Shop, functions: Any
) -> None:
    result = functions.add.enqueue(1)
    shop.app.cancel(result.id)
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 0)
    [error] = result.errors
    assert issubclass(error.exception_class, Exception)
    assert "cancelled" in error.traceback


def test_a_task_gets_its_context(shop: Shop, functions: Any) -> None:
    result = functions.describe.enqueue()
    run(shop)
    result.refresh()
    assert result.return_value == [result.id, "RUNNING", 1]


def test_signals_tell_of_every_step(shop: Shop, functions: Any, library: Any) -> None:
    told: list[tuple[str, str]] = []

    def listener(name: str) -> Any:
        def tell(sender: Any, task_result: Any, **_: Any) -> None:
            told.append((name, task_result.status))

        return tell

    names = ("task_enqueued", "task_started", "task_finished")
    listeners = {name: listener(name) for name in names}
    for name, each in listeners.items():
        getattr(library.signals, name).connect(each)
    try:
        functions.add.enqueue(1)
        functions.fail.enqueue("no")
        run(shop, raise_errors=False)
    finally:
        for name, each in listeners.items():
            getattr(library.signals, name).disconnect(each)
    assert told[:2] == [("task_enqueued", "READY")] * 2
    assert told[2:4] == [("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]
    assert told[4:] == [("task_started", "RUNNING"), ("task_finished", "FAILED")]


def test_a_result_of_no_task_does_not_exist(shop: Shop, functions: Any, library: Any) -> None:
    other = shop.tasks.pay.enqueue(invoice=1)
    unknown = "00000000-0000-7000-8000-000000000000"
    for result_id in ("123", unknown, str(other.job_id)):
        with pytest.raises(library.TaskResultDoesNotExist, match=result_id):
            functions.add.get_result(result_id)


def test_a_result_of_another_function_is_refused(shop: Shop, functions: Any) -> None:
    result = functions.add.enqueue(1)
    with pytest.raises(Exception, match="does not match"):
        functions.mail.get_result(result.id)


def test_times_are_naive_without_time_zones(shop: Shop, functions: Any) -> None:
    from django.test import override_settings

    with override_settings(USE_TZ=False):
        later = datetime.now() + timedelta(hours=1)  # noqa: DTZ005
        result = functions.add.using(run_after=later).enqueue(1)
        assert result.enqueued_at.tzinfo is None
        assert functions.add.get_result(result.id) == result
    assert run(shop) == []


def test_a_backend_of_another_database(shop: Shop, archive_url: str, functions: Any) -> None:
    from faultline.adapters.django import app_for

    result = functions.add.using(backend="archive").enqueue(1)
    assert stored(shop) == 0
    archive = app_for("archive")
    run_until_idle(archive)
    result.refresh()
    assert result.status == "SUCCESSFUL"
    archive.close()


def test_an_unknown_option_is_refused(shop: Shop) -> None:
    from faultline.adapters.django.backend import FaultlineBackend

    with pytest.raises(InvalidSettings, match=r"unknown option 'retry'.*retry_errors"):
        FaultlineBackend("default", {"OPTIONS": {"retry": True}})


# ── the fence ────────────────────────────────────────────────────────────────────────────────────


def test_a_function_commits_its_writes_with_its_job(shop: Shop, functions: Any) -> None:
    result = functions.pay.enqueue(invoice=42)
    run(shop)
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert shop.pays(42)


def test_outside_of_a_worker_there_is_no_current_job(shop: Shop, functions: Any) -> None:
    with pytest.raises(InvalidInput, match="that a worker runs"):
        functions.pay.call(invoice=42)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_function_pays_once_whatever_happens_to_its_worker(shop: Shop, functions: Any) -> None:
    from faultline.adapters.django.testing import zombies

    def paid_once() -> bool:
        return bool(shop.models.Payment.objects.count() == 1)

    plain = shop.app.tasks["django.tasks"]

    def arguments(name: str) -> dict[str, Any]:
        return {
            "backend": "default",
            "task": getattr(functions, name).module_path,
            "args": [42],
            "kwargs": {},
            "priority": 0,
            "run_after": None,
        }

    report = zombies(plain, arguments("pay"), invariant=paid_once)
    assert report.refusals > 0
    with pytest.raises(ZombieEffect):
        zombies(plain, arguments("pay_naively"), invariant=paid_once, faults=["supersede"])
