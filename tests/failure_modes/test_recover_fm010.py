"""A producer without a reply repeats its submission, and gets the same job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline_drills.proxy import Proxy
from tests.failure_modes.submissions import AT_INSERT, submission
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Actor, Connect, claim_as


def test_a_producer_that_lost_the_reply_submits_again_and_gets_the_same_job(
    database: ObservedDatabase, proxy: Proxy
) -> None:
    with (
        psycopg.connect(proxy.url, autocommit=True) as producer,
        ThreadPoolExecutor(1) as thread,
    ):
        with database.held_back(AT_INSERT):
            answer = thread.submit(run, producer, submission())
            connection = proxy.connection_of(
                port_at_server=database.port_of(database.wait_until_held())
            )
            connection.drop_replies()
        database.wait_until(
            lambda: database.count("FROM faultline.jobs") == 1, "nothing was submitted"
        )
        connection.close()
        with pytest.raises(psycopg.OperationalError):
            answer.result(timeout=30)
    (claim,) = run(database.conn, claim_as("worker"))

    again = run(database.conn, submission())

    assert (again.job_id, again.existing) == (claim.job_id, True)
    assert database.count("FROM faultline.jobs") == 1
    assert database.job(claim.job_id).state == "running"  # not queued again


def test_after_a_rollback_of_the_first_submission_the_waiting_one_creates_the_job(
    database: ObservedDatabase, connect: Connect
) -> None:
    first, second = Actor(connect), Actor(connect)
    first.begin()
    given_up = first.run(submission())
    second.start(submission())
    assert second.is_blocked()

    first.rollback()

    taken = second.result()
    assert not taken.existing
    assert taken.job_id != given_up.job_id
    assert database.conn.execute("SELECT id FROM faultline.jobs").fetchall() == [(taken.job_id,)]
