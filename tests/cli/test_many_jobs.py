"""`faultline jobs retry|cancel|delete|export` by filter, and an edit of one job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from faultline.cli import job_sweep
from faultline.postgres.sessions import run
from faultline.statements import jobs, protocol
from tests.protocol.steps import rows, value

from .conftest import Connection, Faultline, claim, enqueue, invoke

APP = "tests.cli.shop:app"
AUDIT = "SELECT actor_kind, action, object, result, detail FROM faultline.audit_log ORDER BY id"


def failed(conn: Connection, error: str = "Boom: x", **options: Any) -> UUID:
    """Nothing else may be due."""
    job_id = enqueue(conn, max_attempts=1, **options)
    queue = options.get("queue", "default")
    [claimed] = run(conn, protocol.claim("w", [queue], batch_size=1, lease_seconds=60))
    run(conn, protocol.fail(claimed, error=error))
    return job_id


def made_older(conn: Connection, job_id: UUID) -> UUID:
    """Created three days ago and finished two days ago: its new id."""
    conn.execute("SET session_replication_role = replica")  # a job's id never changes otherwise
    changed = value(
        conn,
        "UPDATE faultline.jobs SET id = faultline.uuid7(created_at - interval '3 days'),"
        " created_at = created_at - interval '3 days', finished_at = finished_at - interval '2 days'"
        " WHERE id = %s RETURNING id",
        job_id,
    )
    conn.execute("SET session_replication_role = origin")
    return UUID(str(changed))


def states(conn: Connection) -> list[str]:
    return [state for (state,) in rows(conn, "SELECT state FROM faultline.jobs ORDER BY id")]


# ── retry, cancel, delete ────────────────────────────────────────────────────────────────────────


def test_a_dry_run_prints_the_count_and_a_sample_and_changes_nothing(
    faultline: Faultline, conn: Connection
) -> None:
    ids = [failed(conn, f"Boom: {number}") for number in range(12)]
    shown = faultline("jobs", "retry", "--error", "Boom", "--dry-run")
    first, header, *sample, last = shown.out.splitlines()
    assert shown.code == 0
    assert first == "would retry 12 jobs; nothing was changed"
    assert header.split() == ["id", "task", "queue", "state"]
    assert [line.split() for line in sample] == [
        [str(ids[number]), "send_mail", "default", "failed", "Boom:", str(number)]
        for number in range(11, 1, -1)
    ]
    assert last == "and 2 more"
    told = faultline("jobs", "delete", *map(str, ids[:2]), "--dry-run", "--json").json
    assert (told["action"], told["dry_run"], told["matched"]) == ("delete", True, 2)
    assert [job["id"] for job in told["sample"]] == [str(ids[1]), str(ids[0])]
    assert set(states(conn)) == {"failed"}
    assert rows(conn, AUDIT) == []


def test_jobs_are_found_and_operated_by_a_tag(faultline: Faultline, conn: Connection) -> None:
    tags = ("--tag", "vip", "--tag", "import:7")
    tagged = faultline("enqueue", "send_mail", *tags).out.strip()
    faultline("enqueue", "send_mail")
    [listed] = faultline("jobs", "list", "--tag", "import:7", "--json").json
    assert (listed["id"], listed["tags"]) == (tagged, ["import:7", "vip"])
    shown = faultline("jobs", "show", tagged).out.splitlines()
    assert [line.split() for line in shown if line.startswith("tags")] == [
        ["tags", "import:7,", "vip"]
    ]
    assert faultline("jobs", "cancel", "--tag", "vip", "--yes").out == "1 job cancelled\n"
    refusal = faultline("jobs", "list", "--tag", "two words").refused("invalid_input")
    assert "is not a tag" in str(refusal)


def test_the_jobs_of_an_added_schedule_have_its_tags(
    faultline: Faultline, conn: Connection
) -> None:
    added = ("schedules", "add", "report", "send_mail", "--every", "1h", "--tag", "nightly")
    assert faultline(*added).code == 0
    assert faultline("schedules", "run-now", "report").code == 0
    [listed] = faultline("jobs", "list", "--tag", "nightly", "--json").json
    assert listed["task"] == "send_mail"


def test_an_action_by_filter_reports_how_many_jobs_it_changed(
    faultline: Faultline, conn: Connection
) -> None:
    failed(conn, queue="other")
    for _ in range(3):
        failed(conn)
    filtered = ["--queue", "default", "--yes"]
    assert faultline("jobs", "retry", *filtered).out == "3 jobs queued again\n"
    assert (
        faultline("jobs", "cancel", *filtered, "--reason", "a mistake").out == "3 jobs cancelled\n"
    )
    assert faultline("jobs", "delete", *filtered).out == "3 jobs deleted\n"
    assert faultline("jobs", "delete", *filtered).out == "no such jobs\n"
    assert states(conn) == ["failed"]
    assert rows(conn, AUDIT) == [
        ("command line", "retry", 'jobs {"queue": "default", "state": "failed"}', "done", "3 done"),
        (
            *("command line", "cancel", 'jobs {"queue": "default", "state": "queued"}', "done"),
            "3 done: a mistake",
        ),
        (
            "command line",
            "delete",
            'jobs {"queue": "default", "state": "failed"}',
            "done",
            "3 done",
        ),
    ]


def test_the_report_as_json(faultline: Faultline, conn: Connection) -> None:
    failed(conn)
    assert faultline("jobs", "delete", "--state", "failed", "--yes", "--json").json == {
        "action": "delete",
        "dry_run": False,
        "matched": 1,
        "done": 1,
        "unchanged": 0,
        "refused": 0,
        "locked": 0,
        "gone": 0,
        "locked_ids": [],
        "refused_ids": [],
    }


def test_many_pages_are_walked_to_the_end(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_sweep, "COUNT_PAGE", 4)
    monkeypatch.setattr(job_sweep, "PAGE_SIZE", 3)
    for _ in range(10):
        enqueue(conn)
    claim(conn)
    assert faultline("jobs", "cancel", "--task", "send_mail", "--yes").out == "10 jobs cancelled\n"
    assert len(rows(conn, AUDIT)) == 4
    assert set(states(conn)) == {"failed"}


def test_without_a_terminal_an_action_by_filter_needs_yes(
    faultline: Faultline, conn: Connection
) -> None:
    failed(conn)
    answer = faultline("jobs", "delete", "--state", "failed")
    refusal = answer.refused("invalid_input")
    assert refusal.message == "this would delete 1 job; nothing was changed"
    assert "--yes" in str(refusal.hint)
    assert states(conn) == ["failed"]


@pytest.mark.parametrize(("answer", "left"), [("y\n", []), ("n\n", ["failed"]), ("\n", ["failed"])])
def test_on_a_terminal_the_operator_is_asked(
    faultline: Faultline,
    conn: Connection,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    left: list[str],
) -> None:
    monkeypatch.setattr(job_sweep, "_is_terminal", lambda: True)
    failed(conn)
    shown = faultline("jobs", "delete", "--state", "failed", stdin=answer)
    assert "Delete 1 job? [y/N]:" in shown.out
    assert shown.code == (1 if left else 0)
    assert states(conn) == left


def test_locked_jobs_are_skipped_named_and_make_the_exit_code_1(
    faultline: Faultline, conn: Connection
) -> None:
    busy, _ = failed(conn), failed(conn)
    with conn.transaction():
        conn.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [busy])
        shown = faultline("jobs", "retry", "--state", "failed", "--yes")
    assert shown.code == 1
    assert shown.out.splitlines() == [
        "1 job queued again",
        "1 job skipped because another session holds the row",
        f"  {busy}",
        "run the command again for the skipped jobs",
    ]


def test_ids_with_a_filter_change_only_the_jobs_that_match(
    faultline: Faultline, conn: Connection
) -> None:
    boom, other = failed(conn), failed(conn, "Other: y")
    ids = [str(boom), str(other)]
    assert (
        faultline("jobs", "retry", *ids, "--error", "Boom", "--yes").out == "1 job queued again\n"
    )
    assert states(conn) == ["queued", "failed"]


@pytest.mark.parametrize("verb", ["retry", "cancel", "delete"])
def test_an_action_on_nothing_in_particular_is_refused(faultline: Faultline, verb: str) -> None:
    answer = faultline("jobs", verb, "--yes")
    assert answer.code == 2
    assert "Give the ids of jobs, or a filter" in answer.out


def test_an_action_is_refused_for_a_state_that_it_never_changes(faultline: Faultline) -> None:
    refusal = faultline("jobs", "delete", "--state", "running", "--yes").refused("invalid_input")
    assert refusal.message == "delete changes queued and failed jobs, not running ones"


def test_delete_reports_each_job_and_fails_if_one_was_refused(
    faultline: Faultline, conn: Connection
) -> None:
    running, queued, unknown = enqueue(conn), enqueue(conn), uuid4()
    claim(conn)
    answer = faultline("jobs", "delete", str(running), str(queued), str(unknown))
    assert answer.code == 1
    first, second, third = answer.out.splitlines()
    assert first == (
        f"{running}  [illegal_transition] job {running} is running; it cannot be deleted"
        " (Cancel it first, then delete it.)"
    )
    assert second == f"{queued}  is deleted"
    assert third.startswith(f"{unknown}  [unknown_job]")
    assert states(conn) == ["running"]
    found = [row[1:4] for row in rows(conn, AUDIT)]
    assert ("delete", f"job {running}", "refused") in found
    assert ("delete", f"job {queued}", "done") in found


# ── filters ──────────────────────────────────────────────────────────────────────────────────────


def test_every_filter_narrows_the_list(faultline: Faultline, conn: Connection) -> None:
    boom, other = failed(conn, "Boom: x"), failed(conn, "Other: y", queue="mail", task="report")
    waiting = enqueue(conn)
    boom = made_older(conn, boom)
    for words, expected in (
        (["--error", "Boom"], {boom}),
        (["--failed-reason", "attempts_spent"], {boom, other}),
        (["--failed-reason", "cancelled"], set()),
        (["--queue", "mail", "--task", "report"], {other}),
        (["--finished-before", "1d"], {boom}),
        (["--state", "failed", "--finished-before", "36h", "--finished-after", "3d"], {boom}),
        (["--state", "failed", "--finished-after", "1h"], {other}),
        (["--created-after", "30min"], {other, waiting}),
        (["--created-before", "2999-01-01T00:00:00+00:00"], {boom, other, waiting}),
    ):
        found = faultline("jobs", "list", *words, "--json").json
        assert {UUID(job["id"]) for job in found} == expected, words


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01", "5 d", "-3d", "9999999999d"])
def test_a_time_that_cannot_be_read_is_refused(faultline: Faultline, time: str) -> None:
    answer = faultline("jobs", "list", "--created-before", time)
    assert answer.code == 2
    assert "neither a time ago" in answer.out


# ── edit ─────────────────────────────────────────────────────────────────────────────────────────


def test_edit_replaces_the_payload_and_the_timeline_keeps_the_former_one(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = str(failed(conn))
    said = faultline("jobs", "edit", job_id, "--payload", '{"to": "grace"}').out
    assert said == (
        f"{job_id}  has the new payload, and is failed; to run it: faultline jobs retry {job_id}\n"
    )
    told = faultline("jobs", "show", job_id, "--json").json
    assert told["payload"] == {"to": "grace"}
    edited = told["timeline"][-1]
    assert (edited["kind"], edited["text"]) == (
        *("edited", 'the payload was edited by an operator; it was {"to": "ada"}'),
    )
    again = faultline("jobs", "edit", job_id, "--payload", "-", "--json", stdin='{"to": "joan"}')
    assert again.json == {"job_id": job_id, "state": "failed"}


@pytest.mark.parametrize("payload", ["{", "[]", '{"a": 1, "a": 2}', '{"a": NaN}'])
def test_edit_refuses_a_payload_that_is_not_a_json_object(
    faultline: Faultline, conn: Connection, payload: str
) -> None:
    job_id = str(enqueue(conn))
    faultline("jobs", "edit", job_id, "--payload", payload).refused("invalid_input")


def test_edit_refuses_a_running_and_a_succeeded_job(faultline: Faultline, conn: Connection) -> None:
    job_id = str(enqueue(conn))
    held = claim(conn)
    faultline("jobs", "edit", job_id, "--payload", "{}").refused("illegal_transition")
    run(conn, protocol.commit(held))
    faultline("jobs", "edit", job_id, "--payload", "{}").refused("illegal_transition")
    found = [row[1:4] for row in rows(conn, AUDIT)]
    assert found == [("edit", f"job {job_id}", "refused")] * 2


def test_a_dry_run_of_an_edit_shows_both_payloads_and_changes_nothing(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = str(enqueue(conn))
    given = ("jobs", "edit", job_id, "--payload", '{"to": "grace"}', "--dry-run")
    said = faultline(*given).out
    assert "nothing was changed" in said
    assert said.index('{"to": "ada"}') < said.index('{"to": "grace"}')
    told = faultline(*given, "--json").json
    assert (told["former"], told["payload"]) == ({"to": "ada"}, {"to": "grace"})
    shown = faultline("jobs", "show", job_id, "--json").json
    assert shown["payload"] == {"to": "ada"}
    assert [event["kind"] for event in shown["timeline"]].count("edited") == 0
    assert rows(conn, AUDIT) == []
    claim(conn)
    faultline(*given).refused("illegal_transition")


def test_edit_checks_the_arguments_if_it_knows_the_task(
    faultline: Faultline, conn: Connection
) -> None:
    job_id, other = str(enqueue(conn, task="shop.charge")), str(enqueue(conn))
    given = ("jobs", "edit", job_id, "--payload", '{"invoce": 1}')
    refused = faultline(*given, app=APP).refused("invalid_input")
    assert "does not fit shop.charge: it has no argument 'invoce'" in refused.message
    assert refused.hint == "did you mean invoice? --force stores it anyway"
    assert faultline(*given, "--force", app=APP).code == 0
    other_type = ("jobs", "edit", job_id, "--payload", '{"invoice": "1"}')
    assert faultline(*other_type, app=APP).refused("invalid_input").message == (
        "the payload does not fit shop.charge: invoice: expected int, got a string"
    )
    assert faultline("jobs", "edit", job_id, "--payload", '{"invoice": 1}', app=APP).code == 0
    assert faultline("jobs", "edit", other, "--payload", '{"x": 1}', app=APP).code == 0
    assert faultline(*given).code == 0  # without an application


def test_lists_show_the_first_line_of_an_error(faultline: Faultline, conn: Connection) -> None:
    failed(conn, "ValueError: no\n\nTraceback (most recent call last):\n  File")
    for words in (("list",), ("retry", "--state", "failed", "--dry-run")):
        shown = faultline("jobs", *words).out
        assert "ValueError: no" in shown
        assert "Traceback" not in shown


# ── export ───────────────────────────────────────────────────────────────────────────────────────


def test_export_writes_a_line_of_exact_json_for_each_job(
    faultline: Faultline, conn: Connection, tmp_path: Path
) -> None:
    numbers = '{"big": 123456789012345678901234567890, "f": 0.1000000000000000055}'
    job_id = value(conn, "SELECT job_id FROM faultline.enqueue('t', %s::jsonb)", numbers)
    other = enqueue(conn)
    second, first = faultline("jobs", "export").out.splitlines()
    assert [orjson.loads(line)["id"] for line in (first, second)] == [str(job_id), str(other)]
    assert "123456789012345678901234567890" in first
    assert "0.1000000000000000055" in first
    stored = run(conn, jobs.job_json(job_id))
    assert orjson.loads(first) == orjson.loads(orjson.dumps(stored))
    path = tmp_path / "jobs.jsonl"
    assert faultline("jobs", "export", str(other), "-o", str(path)).out == "1 job written\n"
    assert path.read_text() == f"{second}\n"
    assert faultline("jobs", "export", "--json").out == faultline("jobs", "export").out
    assert faultline("jobs", "export", "--task", "none").out == ""


def test_a_read_only_account_may_export_and_not_act(conn: Connection, database_url: str) -> None:
    invoke(database_url, "migrate", "--roles")
    job_id = str(enqueue(conn))
    url = f"{database_url}?options=-c%20role%3Dfaultline_inspector"
    assert job_id in invoke(url, "jobs", "export").out
    dry = invoke(url, "jobs", "cancel", "--state", "queued", "--dry-run")
    assert re.match("would cancel 1 job", dry.out)
    for words in (["cancel", "--state", "queued", "--yes"], ["edit", job_id, "--payload", "{}"]):
        invoke(url, "jobs", *words).refused("database_refused")
    operator = f"{database_url}?options=-c%20role%3Dfaultline_operator"
    assert invoke(operator, "jobs", "delete", "--state", "queued", "--yes").out == "1 job deleted\n"
