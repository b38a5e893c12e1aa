"""`faultline jobs edit --set` changes fields of many payloads by filter."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from faultline.cli import job_sweep
from tests.protocol.steps import rows

from .conftest import Connection, Faultline, claim, enqueue, invoke

APP = "tests.cli.shop:app"
SET = ("--set", '{"cc": "grace"}')


def payloads(conn: Connection) -> list[Any]:
    return [payload for (payload,) in rows(conn, "SELECT payload FROM faultline.jobs ORDER BY id")]


def test_fields_are_set_by_filter_in_pages(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_sweep, "PAGE_SIZE", 2)
    for _ in range(3):
        enqueue(conn)
    other = enqueue(conn, queue="other")
    said = faultline("jobs", "edit", "--queue", "default", *SET, "--yes")
    assert (said.code, said.out) == (0, "3 jobs edited\n")
    assert payloads(conn) == [{"to": "ada", "cc": "grace"}] * 3 + [{"to": "ada"}]
    told = faultline("jobs", "edit", str(other), "--set", "-", "--json", stdin='{"to": "joan"}')
    assert (told.json["action"], told.json["matched"], told.json["done"]) == ("edit", 1, 1)
    again = faultline("jobs", "edit", "--queue", "default", *SET, "--yes").out
    assert again == "0 jobs edited\n3 jobs unchanged: there was nothing to do\n"
    query = "SELECT object, detail FROM faultline.audit_log ORDER BY id LIMIT 2"
    wanted = 'jobs {"queue": "default", "state": "queued"}'
    assert rows(conn, query) == [(wanted, "2 done: cc"), (wanted, "1 done: cc")]


def test_a_dry_run_shows_payloads_before_and_after_and_changes_nothing(
    faultline: Faultline, conn: Connection
) -> None:
    ids = [str(enqueue(conn)) for _ in range(12)]
    given = ("jobs", "edit", "--task", "send_mail", *SET, "--dry-run")
    shown = faultline(*given).out.splitlines()
    assert shown[:4] == [
        "would edit 12 jobs; nothing was changed",
        f"{ids[0]}  send_mail  default  queued",
        '  from  {"to": "ada"}',
        '  to    {"cc": "grace", "to": "ada"}',
    ]
    assert shown[-1] == "and 2 more"
    told = faultline(*given, "--json").json
    assert (told["action"], told["dry_run"], told["matched"]) == ("edit", True, 12)
    assert [job["id"] for job in told["sample"]] == ids[:10]
    assert told["sample"][0]["former"] == {"to": "ada"}
    assert told["sample"][0]["payload"] == {"to": "ada", "cc": "grace"}
    assert payloads(conn) == [{"to": "ada"}] * 12
    assert rows(conn, "SELECT FROM faultline.audit_log") == []


def test_an_edit_by_filter_needs_a_confirmation_and_one_by_ids_does_not(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = str(enqueue(conn))
    refusal = faultline("jobs", "edit", "--queue", "default", *SET).refused("invalid_input")
    assert refusal.message == "this would edit 1 job; nothing was changed"
    monkeypatch.setattr(job_sweep, "_is_terminal", lambda: True)
    shown = faultline("jobs", "edit", "--queue", "default", *SET, stdin="n\n")
    assert "Edit 1 job? [y/N]:" in shown.out
    assert payloads(conn) == [{"to": "ada"}]
    assert faultline("jobs", "edit", job_id, *SET).out == "1 job edited\n"


def test_running_and_unknown_jobs_are_reported(faultline: Faultline, conn: Connection) -> None:
    running, queued = enqueue(conn), enqueue(conn)
    claim(conn)
    answer = faultline("jobs", "edit", str(running), str(queued), *SET)
    assert answer.code == 1
    assert answer.out.splitlines() == [
        "1 job edited",
        "1 job refused because of the state, or because the payload would be too long",
        f"  {running}",
    ]
    some = faultline("jobs", "edit", str(queued), str(uuid4()), "--set", '{"cc": 1}')
    expected = "1 job edited\n1 job not found, or changed by others meanwhile\n"
    assert (some.code, some.out) == (1, expected)
    assert faultline("jobs", "edit", str(uuid4()), *SET).code == 1
    message = faultline("jobs", "edit", "--state", "running", *SET).refused("invalid_input").message
    assert message == "edit changes queued and failed jobs, not running ones"


def test_no_job_is_edited_if_one_does_not_fit_its_task_unless_forced(
    faultline: Faultline, conn: Connection
) -> None:
    enqueue(conn)
    job_id = enqueue(conn, task="shop.charge")
    for words, says in (
        (("--set", '{"invoce": 1}'), "it has no argument"),
        (("--set", '{"to": 1}', "--dry-run"), "it has no argument"),
    ):
        given = ("jobs", "edit", "--queue", "default", *words, "--yes")
        refused = faultline(*given, app=APP).refused("invalid_input")
        assert refused.message.startswith(f"job {job_id}: the payload does not fit shop.charge: ")
        assert says in refused.message
        assert str(refused.hint).endswith("--force stores it anyway")
        assert payloads(conn) == [{"to": "ada"}] * 2
    given = ("jobs", "edit", "--queue", "default", *SET, "--yes")
    assert faultline(*given, "--force", app=APP).out == "2 jobs edited\n"
    assert payloads(conn) == [{"to": "ada", "cc": "grace"}] * 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--queue", "q"), "Give either --set or --payload"),
        (("--queue", "q", "--set", "{}", "--payload", "{}"), "Give either --set or --payload"),
        (("--queue", "q", "--payload", "{}"), "--payload is for one JOB"),
        (("--payload", "{}"), "--payload is for one JOB"),
        (("--set", '{"n": 1}', "--yes"), "Give the ids of jobs, or a filter"),
    ],
)
def test_an_edit_that_is_not_understood_is_refused(
    faultline: Faultline, words: tuple[str, ...], says: str
) -> None:
    answer = faultline("jobs", "edit", *words)
    assert answer.code == 2
    assert says in answer.out


@pytest.mark.parametrize("fields", ["{", "[]", "{}", '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_fields_that_cannot_be_stored_are_refused(
    faultline: Faultline, conn: Connection, fields: str
) -> None:
    enqueue(conn)
    given = ("jobs", "edit", "--queue", "default", "--set", fields, "--yes")
    faultline(*given).refused("invalid_input")
    assert payloads(conn) == [{"to": "ada"}]


def test_a_read_only_account_may_try_and_not_edit(conn: Connection, database_url: str) -> None:
    invoke(database_url, "migrate", "--roles")
    enqueue(conn)
    given = ("jobs", "edit", "--queue", "default", *SET)
    url = f"{database_url}?options=-c%20role%3Dfaultline_inspector"
    assert invoke(url, *given, "--dry-run").out.startswith("would edit 1 job")
    invoke(url, *given, "--yes").refused("database_refused")
    operator = f"{database_url}?options=-c%20role%3Dfaultline_operator"
    assert invoke(operator, *given, "--yes").out == "1 job edited\n"
