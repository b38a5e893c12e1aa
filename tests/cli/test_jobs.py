"""`faultline jobs` lists, shows, retries and cancels jobs."""

from __future__ import annotations

from uuid import uuid4

import pytest

from faultline.cli.output import duration
from faultline.errors import StaleLease
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.protocol.steps import value

from .conftest import Connection, Faultline, claim, enqueue, expire, invoke, register

# ── list ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_list_is_newest_first_and_pages_by_the_last_id(
    faultline: Faultline, conn: Connection
) -> None:
    ids = [str(enqueue(conn)) for _ in range(5)]
    page = [job["id"] for job in faultline("jobs", "list", "--limit", "3", "--json").json]
    rest = faultline("jobs", "list", "--before", page[-1], "--json").json
    assert page + [job["id"] for job in rest] == ids[::-1]
    shown = faultline("jobs", "list", "--limit", "3").out
    assert f"older jobs: faultline jobs list --before {page[-1]}" in shown
    assert all(job_id in shown for job_id in page)


def test_the_list_filters_by_state_queue_and_task(faultline: Faultline, conn: Connection) -> None:
    running = enqueue(conn)
    claim(conn)
    mail, later = enqueue(conn, queue="mail"), enqueue(conn, task="report")
    for words, expected in (
        (["--state", "running"], running),
        (["--queue", "mail"], mail),
        (["--task", "report"], later),
    ):
        [job] = faultline("jobs", "list", *words, "--json").json
        assert job["id"] == str(expected)
    assert faultline("jobs", "list", "--queue", "none").out == "no such jobs\n"


def test_a_jobs_error_text_cannot_control_the_terminal(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = enqueue(conn, max_attempts=1)
    run(conn, protocol.fail(claim(conn), error="\x1b]0;owned\x07[red]boom[/red]\nline two"))
    for words in (["jobs", "list"], ["jobs", "show", str(job_id)], ["why", str(job_id)]):
        shown = faultline(*words).out
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "[red]boom[/red]" in shown


# ── show ─────────────────────────────────────────────────────────────────────────────────────────


def test_show_prints_the_whole_timeline_of_a_job(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    run(conn, protocol.release(claim(conn, "early")))
    run(conn, protocol.fail(claim(conn, "unlucky"), error="boom"))
    stale = claim(conn, "slow")
    expire(conn, job_id)
    winner = claim(conn, "quick")
    run(conn, protocol.commit(winner, result='{"sent": true}'))
    with pytest.raises(StaleLease) as refusal:
        run(conn, protocol.commit(stale))
    run(
        conn,
        protocol.record_rejection(
            job_id, stale_token=3, worker="slow", reason=refusal.value.reason
        ),
    )
    shown = faultline("jobs", "show", str(job_id), "--json").json
    assert shown["state"] == "succeeded"
    assert shown["result"] == {"sent": True}
    assert [(at["kind"], at["token"], at["worker"]) for at in shown["timeline"]] == [
        ("enqueued", None, None),
        ("claimed", 1, "early"),
        ("released", 1, "early"),
        ("claimed", 2, "unlucky"),
        ("failed", 2, "unlucky"),
        ("claimed", 3, "slow"),
        ("expired", 3, "slow"),
        ("taken_over", 4, "quick"),
        ("committed", 4, "quick"),
        ("refused", 3, "slow"),
    ]
    shown = faultline("jobs", "show", str(job_id)).out
    for word in ("+0.00 s", "boom", "stale write refused", "token_mismatch", '{"sent": true}'):
        assert word in shown


def test_numbers_are_shown_exactly_as_they_are_stored(
    faultline: Faultline, conn: Connection
) -> None:
    numbers = '{"big": 123456789012345678901234567890, "f": 0.1000000000000000055, "huge": 1e400}'
    job_id = str(value(conn, "SELECT job_id FROM faultline.enqueue('t', %s::jsonb)", numbers))
    for command in (["show", job_id], ["show", job_id, "--json"], ["list", "--json"]):
        shown = faultline("jobs", *command).out
        assert "123456789012345678901234567890" in shown
        assert "0.1000000000000000055" in shown
        assert "1" + "0" * 400 in shown


def test_show_prints_a_cancellation_and_an_operators_retry(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = str(enqueue(conn))
    faultline("jobs", "cancel", job_id, "--reason", "a mistake")
    faultline("jobs", "retry", job_id)
    timeline = faultline("jobs", "show", job_id, "--json").json["timeline"]
    assert [at["kind"] for at in timeline] == ["enqueued", "cancelled", "retried", "due"]
    assert timeline[1]["text"] == "cancelled: a mistake"


def test_show_of_a_running_job_ends_with_its_lease(faultline: Faultline, conn: Connection) -> None:
    job_id = str(enqueue(conn))
    claim(conn)
    timeline = faultline("jobs", "show", job_id, "--json").json["timeline"]
    assert [at["kind"] for at in timeline] == ["enqueued", "claimed", "lease_ends"]


# ── retry and cancel ─────────────────────────────────────────────────────────────────────────────


def test_retry_reports_each_job_and_fails_if_one_was_refused(
    faultline: Faultline, conn: Connection
) -> None:
    done, failed, unknown = enqueue(conn), enqueue(conn, max_attempts=1), uuid4()
    run(conn, protocol.commit(claim(conn)))
    run(conn, protocol.fail(claim(conn), error="boom"))
    answer = faultline("jobs", "retry", str(done), str(unknown), str(failed), "--json")
    assert answer.code == 1
    assert [(job["state"], job["error"]) for job in answer.json] == [
        (None, "illegal_transition"),
        (None, "unknown_job"),
        ("queued", None),
    ]
    assert faultline("jobs", "retry", str(failed)).out == f"{failed}  is queued\n"


def test_cancel_reports_that_a_succeeded_job_was_not_cancelled(
    faultline: Faultline, conn: Connection
) -> None:
    done = enqueue(conn)
    run(conn, protocol.commit(claim(conn)))
    waiting = enqueue(conn)
    answer = faultline("jobs", "cancel", str(waiting), str(done))
    assert answer.out.splitlines() == [
        f"{waiting}  will not run (again)",
        f"{done}  had succeeded before; nothing was cancelled",
    ]


def test_cancel_does_not_wait_for_ever_behind_an_open_transaction(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.cli.context.LOCK_TIMEOUT_SECONDS", 0.01)
    job_id = enqueue(conn)
    with conn.transaction():
        conn.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [job_id])
        answer = faultline("jobs", "cancel", str(job_id))
    assert answer.code == 1
    assert "faultline why" in answer.out


@pytest.mark.parametrize("words", [["show"], ["retry"], ["cancel"], ["list", "--before"]])
def test_an_invalid_id_is_refused_without_a_database_query(words: list[str]) -> None:
    done = invoke("postgresql://127.0.0.1:1/never-asked", "jobs", *words, "\x1b[31m' OR 1=1")
    assert done.code == 2
    assert "is not a valid UUID" in done.out
    assert "\x1b" not in done.out


def test_a_read_only_account_can_list_but_not_operate(conn: Connection, database_url: str) -> None:
    invoke(database_url, "migrate", "--roles")
    job_id = str(enqueue(conn))
    register(conn, "w")
    url = f"{database_url}?options=-c%20role%3Dfaultline_inspector"
    assert invoke(url, "jobs", "list", "--json").json[0]["id"] == job_id
    assert invoke(url, "why", job_id, "--json").json["code"] == "next_in_line"
    assert invoke(url, "verify").code == 0
    assert "could not be checked" not in invoke(url, "doctor").out
    [answer] = invoke(url, "jobs", "cancel", job_id, "--json").json
    assert answer["error"] == "database_refused"
    assert "faultline_operator" in answer["says"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.014, "0.01 s"),
        (12.34, "12.3 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (18_240, "5 h 4 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_durations_are_printed_with_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
