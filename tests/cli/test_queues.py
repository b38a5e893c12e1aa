"""`faultline queues` counts jobs, and pauses and resumes queues."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.protocol.ageing import failed

from .conftest import Connection, Faultline, claim, enqueue, invoke


def test_each_queue_is_a_line_with_the_age_of_its_oldest_job(
    faultline: Faultline, conn: Connection
) -> None:
    assert faultline("queues").out == "no queues\n"
    enqueue(conn)
    claim(conn)
    enqueue(conn, queue="mail", run_at=datetime(2999, 1, 1, tzinfo=UTC))
    failed(conn, "2 hours", queue="mail")
    heading, default, mail = faultline("queues").out.splitlines()
    assert heading.split() == [
        "queue",
        *("due", "waiting", "scheduled", "running", "failed", "succeeded"),
    ]
    assert default.split()[:6] == ["default", "0", "0", "0", "1,", "oldest"]
    assert "1, next in" in mail
    assert "1, oldest 2 h" in mail
    assert faultline("queues", "list").out.splitlines()[0] == heading
    counted = faultline("queues", "list", "--exact-up-to", "1", "--json").json
    assert {each["queue"] for each in counted} == {"default", "mail"}


def test_counts_beyond_the_limit_are_printed_as_at_least(
    faultline: Faultline, conn: Connection
) -> None:
    # Without autovacuum the table is not analyzed.
    conn.execute("ALTER TABLE faultline.jobs SET (autovacuum_enabled = off)")
    conn.execute("SELECT faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[1000]))")
    assert "≥ 20, oldest" in faultline("queues", "--exact-up-to", "20").out
    conn.execute("ANALYZE faultline.jobs")
    assert "≥ 20 (about " in faultline("queues", "--exact-up-to", "20").out
    [due, *_] = faultline("queues", "--exact-up-to", "20", "--json").json
    assert (due["standing"], due["at_least"], due["is_exact"]) == ("due", 20, False)
    assert due["estimate"] == pytest.approx(1000, rel=0.05)


def test_a_read_only_account_can_count_queues(conn: Connection, database_url: str) -> None:
    invoke(database_url, "migrate", "--roles")
    enqueue(conn)
    conn.execute("ANALYZE faultline.jobs")
    url = f"{database_url}?options=-c%20role%3Dfaultline_inspector"
    counted = {line["standing"]: line for line in invoke(url, "queues", "--json").json}
    assert counted["due"]["at_least"] == 1
    assert (counted["succeeded"]["at_least"], counted["succeeded"]["is_exact"]) == (0, True)


def test_a_queue_is_paused_and_resumed_and_both_are_printed(
    faultline: Faultline, conn: Connection
) -> None:
    enqueue(conn, queue="mail")
    assert faultline("queues", "pause", "mail", "--reason", "down").out == "mail is paused\n"
    assert faultline("queues", "pause", "mail").out == "mail was paused already\n"
    *_, line = faultline("queues").out.splitlines()
    assert line.startswith("mail is paused since ")
    assert line.endswith(": down")
    assert faultline("queues", "resume", "mail").out == "mail is resumed\n"
    assert faultline("queues", "resume", "mail").out == "mail was not paused\n"
    assert "paused" not in faultline("queues").out
