"""`faultline jobs` lists, shows, retries and cancels jobs."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

from faultline.cli.output import duration
from faultline.errors import StaleLease
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.progress import ProgressReport, report_progress
from faultline.statements.snoozes import snooze
from tests.protocol.steps import value

from .conftest import Connection, Faultline, claim, enqueue, expire, invoke, register

# ── list ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_list_is_newest_first_and_prints_where_the_next_page_begins(
    faultline: Faultline, conn: Connection
) -> None:
    ids = [str(enqueue(conn)) for _ in range(5)]
    *shown, last = faultline("jobs", "list", "--limit", "3").out.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ids[:1:-1]
    more, _, cursor = last.rpartition(" ")
    assert more == "more jobs: add --after"
    rest = faultline("jobs", "list", "--after", cursor, "--json").json
    assert [job["id"] for job in rest] == ids[1::-1]


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


@pytest.mark.parametrize("words", [["show"], ["retry"], ["cancel"], ["delete"], ["export"]])
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


def test_progress_is_listed_and_shown(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    report = ProgressReport(claim(conn), 0.409, "4 of 10")
    run(conn, report_progress([report]))
    assert "40 %: 4 of 10, on" in faultline("jobs", "list").out
    shown = faultline("jobs", "show", str(job_id))
    assert re.search(r"^progress +40 %: 4 of 10$", shown.out, re.MULTILINE)
    stored = faultline("jobs", "show", str(job_id), "--json").json["progress"]
    assert (stored["fraction"], stored["message"]) == (pytest.approx(0.409), "4 of 10")
    assert stored["reported_at"] is not None


def test_snoozes_are_in_the_timeline_with_their_reasons(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = enqueue(conn)
    run(conn, snooze(claim(conn), seconds=60, until=None, reason="the bank is closed"))
    conn.execute("UPDATE faultline.attempts_log SET times = 1234")
    timeline = faultline("jobs", "show", str(job_id), "--json").json["timeline"]
    [event] = [event for event in timeline if event["kind"] == "snoozed"]
    assert event["text"].startswith("snoozed by its handler; the attempt does not count: the bank")
    assert "the last of 1,234 snoozes" in event["text"]
