"""Mistyped commands, options, tasks and queues: the error names the closest one."""

from __future__ import annotations

import click
import pytest

from faultline.cli.main import cli
from faultline.cli.usage_errors import usage_problem
from faultline.suggestions import close_matches, did_you_mean

from .conftest import Connection, Faultline, claim, enqueue, invoke, register

APP = "tests.cli.shop:app"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["wroker"], "did you mean worker? See faultline --help"),
        (["quques"], "did you mean queues? See faultline --help"),
        (["retry"], "did you mean jobs retry or limits reset? See faultline --help"),
        (["jobs", "lsit"], "did you mean list? See faultline jobs --help"),
        (["drill", "lst"], "did you mean list? See faultline drill --help"),
        (["worker", "--queue", "a"], "did you mean --queues? See faultline worker --help"),
        (["worker", "--ap", "x:y"], "did you mean --app or --help? See faultline worker --help"),
        (["xyzzy"], "faultline --help"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_closest(words: list[str], says: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli(words, "faultline", standalone_mode=False)
    problem = usage_problem(refused.value)
    assert problem.hint == says
    assert "did you mean" not in problem.message.lower()
    assert f"{words[0]!r}" in problem.message or words[1] in problem.message


def test_the_last_part_of_a_dotted_name_is_enough() -> None:
    assert close_matches("chrage", ["shop.charge", "shop.mail"]) == ["shop.charge"]
    assert did_you_mean("nothing", ["shop.charge"]) is None


@pytest.mark.parametrize("typed", ["shop.chrage", "chrage"])
def test_a_mistyped_task_is_refused_with_the_closest(faultline: Faultline, typed: str) -> None:
    refused = faultline("enqueue", typed, app=APP).refused("unknown_task")
    assert refused.hint == "did you mean shop.charge? --force stores it anyway"


def test_a_queue_that_no_task_uses_is_enqueued_to_with_a_warning(faultline: Faultline) -> None:
    given = ("enqueue", "shop.charge", '{"invoice": 1}', "--queue")
    warned = faultline(*given, "biling", app=APP)
    assert warned.code == 0
    assert "no task uses the queue biling; did you mean billing?" in warned.out
    for quiet in ((*given, "biling", "--force"), (*given, "billing"), (*given, "elsewhere")):
        assert "warning" not in faultline(*quiet, app=APP).out
    assert "warning" not in faultline(*given, "biling").out  # without an application


@pytest.mark.parametrize(
    ("words", "closest"),
    [
        (("run", "backend_kiled"), "backend_killed"),
        (("mutants", "expiry_ignord"), "expiry_ignored"),
    ],
)
def test_a_mistyped_scenario_or_mutant_is_refused_with_the_closest(
    words: tuple[str, ...], closest: str
) -> None:
    refused = invoke("postgresql://127.0.0.1:1/never", "drill", *words).refused("invalid_input")
    assert refused.hint is not None
    assert closest in refused.hint


# ── queues pause ─────────────────────────────────────────────────────────────────────────────────


def test_a_queue_that_does_not_exist_is_not_paused(faultline: Faultline, conn: Connection) -> None:
    enqueue(conn, queue="billing")
    refused = faultline("queues", "pause", "biling").refused("invalid_input")
    assert refused.message == "there is no queue 'biling'"
    assert refused.hint == "did you mean billing? --force pauses it before its first job"
    assert "paused" not in faultline("queues").out


def test_force_pauses_a_queue_before_its_first_job(faultline: Faultline) -> None:
    assert faultline("queues", "pause", "new").error is not None
    assert faultline("queues", "pause", "new", "--force").out == "new is paused\n"
    assert faultline("queues", "pause", "new").out == "new was paused already\n"


@pytest.mark.parametrize("known_by", ["a task", "a worker", "a running job", "its name"])
def test_a_queue_exists_if_a_task_a_worker_or_a_job_uses_it(
    faultline: Faultline, conn: Connection, known_by: str
) -> None:
    queue, app = ("default" if known_by in ("its name", "a running job") else "billing"), None
    if known_by == "a task":
        app = APP
    elif known_by == "a worker":
        register(conn, "w", queue)
    elif known_by == "a running job":
        enqueue(conn)
        claim(conn)
    assert faultline("queues", "pause", queue, app=app).out == f"{queue} is paused\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("jobs", "list"), "no such jobs"),
        (("jobs", "retry", "--yes"), "no such jobs"),
        (("jobs", "delete", "--dry-run"), "would delete 0 jobs"),
    ],
)
def test_a_filter_that_nothing_matches_names_the_closest_queue_or_task(
    faultline: Faultline, conn: Connection, words: tuple[str, ...], says: str
) -> None:
    enqueue(conn, queue="billing")
    mistyped = faultline(*words, "--queue", "biling")
    assert mistyped.out == f"{says}; did you mean billing?\n"
    assert "did you mean" not in faultline(*words, "--queue", "default").out
    assert "did you mean" not in faultline(*words, "--queue", "biling", "--json").out
    mistyped = faultline(*words, "--task", "shop.chrage", app=APP)
    assert mistyped.out == f"{says}; did you mean shop.charge?\n"
    assert "did you mean" not in faultline(*words, "--task", "shop.charge", app=APP).out
    assert "did you mean" not in faultline(*words, "--task", "shop.chrage").out


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_queue_that_does_not_exist_is_not_resumed(
    faultline: Faultline, options: tuple[str, ...]
) -> None:
    faultline("queues", "pause", "billing", "--force")
    refused = faultline("queues", "resume", "biling", *options).refused("invalid_input")
    assert refused.message == "there is no queue 'biling'"
    assert refused.hint is not None
    assert refused.hint.startswith("did you mean billing?")
    assert faultline("queues", "resume", "default").out == "default was not paused\n"
    assert faultline("queues", "resume", "billing").out == "billing is resumed\n"
