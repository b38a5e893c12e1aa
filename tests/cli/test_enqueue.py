"""`faultline enqueue` stores one job, or refuses its arguments."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from datetime import date, timedelta
from uuid import UUID

import pytest

import faultline as library
from faultline.model import DEFAULT_MAX_ATTEMPTS, JobRecord
from faultline.postgres.sessions import run
from faultline.statements import jobs

from .conftest import Connection, Faultline


def stored(conn: Connection, job_id: str) -> JobRecord:
    record = run(conn, jobs.get_job(UUID(job_id)))
    assert record is not None
    return record


def test_enqueue_prints_the_id_of_the_new_job(faultline: Faultline, conn: Connection) -> None:
    done = faultline("enqueue", "send_mail", '{"to": "ada"}', "--queue", "mail", "--priority", "2")
    job = stored(conn, done.out.strip())
    assert (job.task, job.payload) == ("send_mail", {"to": "ada"})
    assert (job.queue, job.priority, job.max_attempts) == ("mail", 2, DEFAULT_MAX_ATTEMPTS)


def test_the_same_key_returns_the_same_job_and_reports_that_it_existed(
    faultline: Faultline,
) -> None:
    first = faultline("enqueue", "send_mail", "--key", "k", "--json").json
    second = faultline("enqueue", "send_mail", "--key", "k", "--json").json
    assert (first["existing"], second["existing"]) == (False, True)
    assert first["job_id"] == second["job_id"]
    assert "(existed before)" in faultline("enqueue", "send_mail", "--key", "k").out
    other = faultline("enqueue", "send_mail", '{"to": "bob"}', "--key", "k")
    other.refused("idempotency_conflict")


def test_a_dash_reads_the_payload_from_stdin(faultline: Faultline, conn: Connection) -> None:
    done = faultline("enqueue", "send_mail", "-", stdin='{"to": "zoë"}')
    assert stored(conn, done.out.strip()).payload == {"to": "zoë"}


def test_a_delay_counts_from_the_databases_clock(faultline: Faultline, conn: Connection) -> None:
    job = stored(conn, faultline("enqueue", "send_mail", "--delay", "3600").out.strip())
    waits = job.next_run_at - job.created_at
    assert timedelta(minutes=59) < waits <= timedelta(hours=1)


def test_run_at_requires_a_time_zone(faultline: Faultline, conn: Connection) -> None:
    done = faultline("enqueue", "send_mail", "--run-at", "2030-01-31T09:00:00+01:00")
    assert stored(conn, done.out.strip()).next_run_at.isoformat() == "2030-01-31T08:00:00+00:00"


BAD_INPUT = [
    ["send_mail", "{"],
    ["send_mail", "[1]"],
    ["send_mail", "7"],
    ["send_mail", '{"n": NaN}'],
    ["send_mail", '{"n": 123456789012345678901234567890}'],
    ["send_mail", '{"n": 1e999}'],
    ["send_mail", '{"n": "\\u0000"}'],
    ["send_mail", "[" * 100_000],
    ["send_mail", '{"a":' * 100 + "1" + "}" * 100],
    ["send mail; DROP TABLE faultline.jobs"],
    ["\x1b[31mred"],
    [""],
    ["send_mail", "--queue", "no such/queue"],
    ["send_mail", "--priority", "10"],
    ["send_mail", "--max-attempts", "0"],
    ["send_mail", "--key", ""],
    ["send_mail", "--key", "k" * 256],
    ["send_mail", "--run-at", "tomorrow"],
    ["send_mail", "--run-at", "2030-01-31T09:00:00"],
    ["send_mail", "--delay", "-1"],
    ["send_mail", "--delay", "nan"],
    ["send_mail", "--delay", "1e300"],
    ["send_mail", "--delay", "1", "--run-at", "2030-01-31T09:00:00Z"],
]


def test_bad_input_is_refused_and_nothing_is_written(
    faultline: Faultline, conn: Connection
) -> None:
    for words in BAD_INPUT:
        error = faultline("enqueue", *words).refused("invalid_input")
        assert "\x1b" not in str(error)
    assert conn.execute("SELECT count(*) FROM faultline.jobs").fetchone() == (0,)


# ── with an application ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An application that has one task, with options of its own."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    app = library.Faultline()

    @app.task(name="charge", queue="billing", priority=1, max_attempts=3)
    def charge(job: library.Job, order_id: int) -> None: ...

    @app.task(name="remind")
    def remind(job: library.Job, days: list[date]) -> None: ...

    module = types.ModuleType("shop_of_the_cli_tests")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield f"{module.__name__}:app"
    app.close()


def test_the_tasks_own_options_apply(faultline: Faultline, conn: Connection, shop: str) -> None:
    done = faultline("enqueue", "charge", '{"order_id": 7}', app=shop)
    job = stored(conn, done.out.strip())
    assert (job.queue, job.priority, job.max_attempts) == ("billing", 1, 3)


def test_an_unknown_task_is_refused_unless_forced(faultline: Faultline, shop: str) -> None:
    error = faultline("enqueue", "chrage", app=shop).refused("unknown_task")
    assert "charge" in (error.hint or "")
    assert "--force" in (error.hint or "")
    assert faultline("enqueue", "chrage", "--force", app=shop).code == 0


def test_arguments_that_do_not_fit_the_task_are_refused(faultline: Faultline, shop: str) -> None:
    error = faultline("enqueue", "charge", '{"order": 7}', app=shop).refused("invalid_input")
    assert error.message == "the payload does not fit charge: it has no argument 'order'"
    assert error.hint == "did you mean order_id? --force stores it anyway"
    given = ("enqueue", "charge", '{"order_id": "7"}')
    error = faultline(*given, app=shop).refused("invalid_input")
    assert error.message == (
        "the payload does not fit charge: order_id: expected int, got a string"
    )
    assert faultline(*given, "--force", app=shop).code == 0


def test_json_of_rich_arguments_is_checked_and_stored_as_it_is(
    faultline: Faultline, conn: Connection, shop: str
) -> None:
    done = faultline("enqueue", "remind", '{"days": ["2026-01-31"]}', app=shop)
    assert stored(conn, done.out.strip()).payload == {"days": ["2026-01-31"]}
    refused = faultline("enqueue", "remind", '{"days": ["31.01.2026"]}', app=shop)
    assert refused.refused("invalid_input").message == (
        'the payload does not fit remind: days[0]: expected date as a string such as "2026-01-31",'
        " got another string"
    )
