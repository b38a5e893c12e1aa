"""What objects show in a console, and what a wrong use of them says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faultline import Faultline, InvalidInput, Job, UnknownTask
from tests.running import work_off


def test_an_app_shows_its_database_without_the_password() -> None:
    app = Faultline("postgresql://ada:secret@db.example/shop")
    app.task(name="t")(lambda job: None)
    assert repr(app) == "<Faultline with 1 task, on postgresql://ada@db.example/shop>"


def test_an_app_without_a_url_starts_no_server_to_show_itself() -> None:
    assert repr(Faultline()) == "<Faultline with 0 tasks, on DATABASE_URL or the embedded server>"


def test_a_job_shows_its_id_task_attempt_and_token(app: Faultline) -> None:
    @app.task(name="shop.show")
    def show(job: Job) -> str:
        return repr(job)

    job_id = show.enqueue().job_id
    shown = work_off(app, job_id).result
    assert shown == f"<Job {job_id} of shop.show, attempt 1, token 1>"


def test_a_running_worker_shows_its_state(app: Faultline) -> None:
    app.task(name="t")(lambda job: None)

    async def states() -> list[str]:
        worker = app.worker()
        found = [repr(worker)]
        async with worker:
            found.append(repr(worker))
        found.append(repr(worker))
        assert worker.worker_id in found[0]
        return [each.rpartition(", ")[2] for each in found]

    assert asyncio.run(states()) == ["not started>", "running>", "ended>"]


@pytest.mark.parametrize("name", ["delay", "apply_async", "send"])
def test_names_of_other_queues_are_answered_with_ours(app: Faultline, name: str) -> None:
    charge: Any = app.task(name="shop.charge")(handler)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; .*handler\.enqueue\(inv"):
        getattr(charge, name)
    with pytest.raises(AttributeError, match=r"no attribute 'colour'$"):
        _ = charge.colour
    assert not hasattr(charge, name)


def handler(job: Job, invoice: int) -> int:
    return invoice


@pytest.mark.parametrize("call", [lambda task: task(invoice=42), lambda task: task(42)])
def test_a_call_without_a_job_says_how_to_enqueue(app: Faultline, call: Any) -> None:
    charge = app.task(name="shop.charge")(handler)
    with pytest.raises(TypeError, match=r"to enqueue a job: handler\.enqueue\(invoice=…\)"):
        call(charge)
    stand_in: Any = object()
    assert charge(stand_in, 42) == 42  # a test may pass what it likes


def test_one_job_is_not_many(app: Faultline) -> None:
    charge = app.task(name="shop.charge")(handler)
    one: Any = charge.job(invoice=1)
    with pytest.raises(
        InvalidInput, match=r"takes a list of jobs, not one job \(app\.enqueue_many"
    ):
        app.enqueue_many(one)
    with pytest.raises(InvalidInput, match="takes a list of jobs, not an int"):
        asyncio.run(app.enqueue_many_async(7))  # type: ignore[arg-type]


def test_a_url_of_another_type_is_refused_at_once() -> None:
    url: Any = 123
    with pytest.raises(InvalidInput, match="URL must be a string, not an int"):
        Faultline(url)


def test_an_unknown_task_is_answered_with_the_closest(app: Faultline) -> None:
    for number in range(30):
        app.task(name=f"shop.t{number}")(lambda job: None)
    app.task(name="shop.charge")(handler)
    with pytest.raises(UnknownTask) as near:
        app.find_task("shop.chrage")
    assert near.value.hint == "did you mean shop.charge?"
    with pytest.raises(UnknownTask) as far:
        app.find_task("mail")
    assert far.value.hint is not None
    assert far.value.hint.endswith("shop.t9 and 21 more")
