"""Idle workers are woken for jobs whose time has come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from .steps import Connection, claim_new, enqueue, make_due, rows
from .test_notify import announce, listen

LATER = datetime(2999, 1, 1, tzinfo=UTC)


def later(conn: Connection, **options: Any) -> UUID:
    job_id: UUID = enqueue(conn, run_at=LATER, **options)[0]
    return job_id


def wake(conn: Connection) -> tuple[int, float | None]:
    """Wake workers; returns how many queues, and when the next job is due."""
    [(notified, next_due_seconds)] = rows(
        conn, "SELECT notified, next_due_seconds FROM faultline.wake_for_due_jobs()"
    )
    return notified, next_due_seconds


def test_a_job_whose_time_has_come_wakes_one_idle_worker(conn: Connection) -> None:
    job_id = later(conn, queue="mail")
    payloads = listen(conn, "mail")
    assert wake(conn)[0] == 0
    make_due(conn, job_id)
    assert wake(conn) == (1, None)
    assert payloads == ["mail"]


def test_as_many_workers_are_woken_as_jobs_are_due(conn: Connection) -> None:
    payloads = listen(conn, "default", worker="a")
    conn.execute("SELECT faultline.listen_as('b')")
    announce(conn, "b", "default")
    for job_id in [later(conn) for _ in range(3)]:
        make_due(conn, job_id)
    assert wake(conn) == (1, None)
    assert payloads == ["default"] * 2


def test_a_worker_of_every_queue_is_woken(conn: Connection) -> None:
    payloads = listen(conn, "*")
    make_due(conn, later(conn, queue="new"))
    assert wake(conn) == (1, None)
    assert payloads == ["new"]


def test_it_says_when_the_next_job_is_due(conn: Connection) -> None:
    listen(conn, "default", "mail")
    make_due(conn, later(conn, queue="mail"), ago="-100 seconds")
    make_due(conn, later(conn, priority=7), ago="-1000 seconds")
    notified, next_due_seconds = wake(conn)
    assert notified == 0
    assert next_due_seconds is not None
    assert 0 < next_due_seconds <= 100.05


@pytest.mark.parametrize(
    "obstacle",
    [
        "SELECT faultline.pause_queue('default')",
        "SELECT faultline.withdraw_idle('w')",
        "SELECT faultline.announce_idle('w', '{mail}')",
        "SET faultline.notify = 'off'",
    ],
)
def test_no_worker_is_woken_that_could_not_claim_the_job(conn: Connection, obstacle: str) -> None:
    make_due(conn, later(conn))
    payloads = listen(conn, "default")
    conn.execute(obstacle.encode())
    assert wake(conn) == (0, None)
    assert payloads == []


def test_a_running_job_wakes_no_worker(conn: Connection) -> None:
    claim_new(conn)
    payloads = listen(conn, "default")
    assert wake(conn) == (0, None)
    assert payloads == []


def test_a_job_that_has_just_become_due_is_left_to_its_own_notification(conn: Connection) -> None:
    payloads = listen(conn, "default")
    with conn.transaction():
        conn.execute("SET LOCAL faultline.notify = 'off'")
        job_id, _ = enqueue(conn)
        conn.execute("SET LOCAL faultline.notify = ''")
        make_due(conn, job_id, ago="-1 hour")
        assert wake(conn)[0] == 0
        make_due(conn, job_id, ago="0 seconds")
        assert wake(conn)[0] == 0
    assert payloads == []
