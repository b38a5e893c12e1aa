"""Mistyped commands, options, tasks and queues: the error names the closest one."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.suggestions import close_matches, did_you_mean

from .conftest import Connection, Faultline, claim, enqueue, invoke, register

APP = "tests.cli.shop:app"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["wroker"], "No such command 'wroker'. Did you mean worker?"),
        (["quques"], "Did you mean queues?"),
        (["retry"], "Did you mean jobs retry or limits reset?"),
        (["drill", "lst"], "Did you mean list?"),
        (["worker", "--queue", "a"], "--queues"),
        (["worker", "--ap", "x:y"], "--app"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_closest(words: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert says in done.output


def test_a_word_that_resembles_nothing_gets_no_suggestion() -> None:
    output = CliRunner().invoke(cli, ["xyzzy"]).output
    assert "No such command 'xyzzy'." in output
    assert "Did you mean" not in output


def test_the_last_part_of_a_dotted_name_is_enough() -> None:
    assert close_matches("chrage", ["shop.charge", "shop.mail"]) == ["shop.charge"]
    assert did_you_mean("nothing", ["shop.charge"]) is None


@pytest.mark.parametrize("typed", ["shop.chrage", "chrage"])
def test_a_mistyped_task_is_refused_with_the_closest(faultline: Faultline, typed: str) -> None:
    refused = faultline("enqueue", typed, app=APP).refused("unknown_task")
    assert refused.hint == "did you mean shop.charge?; --force enqueues the job anyway"


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


@pytest.mark.parametrize("words", [("queues", "resume"), ("jobs", "list", "--queue")])
def test_a_mistyped_queue_is_answered_with_one_that_has_jobs(
    faultline: Faultline, conn: Connection, words: tuple[str, ...]
) -> None:
    enqueue(conn, queue="billing")
    assert faultline(*words, "biling").out.endswith("; did you mean billing?\n")
    assert "did you mean" not in faultline(*words, "default").out
    assert "did you mean" not in faultline(*words, "biling", "--json").out


def test_resuming_a_mistyped_queue_names_the_paused_one(faultline: Faultline) -> None:
    faultline("queues", "pause", "billing", "--force")
    assert (
        faultline("queues", "resume", "biling").out
        == "biling was not paused; did you mean billing?\n"
    )
