"""A producer that does not know whether it has submitted submits again; one that gave up is replaced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline_drills.proxy import Proxy
from tests.failure_modes.submissions import AT_INSERT, submission
from tests.processes.stage import Stage
from tests.races.stepper import Actor, Connect, claim_as


def test_a_producer_that_lost_the_answer_submits_again_and_gets_the_same_job(
    stage: Stage, proxy: Proxy
) -> None:
    with (
        psycopg.connect(proxy.url, autocommit=True) as producer,
        ThreadPoolExecutor(1) as thread,
    ):
        with stage.held_back(AT_INSERT):
            answer = thread.submit(run, producer, submission())
            connection = proxy.connection_of(port_at_server=stage.port_of(stage.wait_until_held()))
            connection.drop_replies()
        stage.wait_until(lambda: stage.count("FROM faultline.jobs") == 1, "nothing was submitted")
        connection.close()
        with pytest.raises(psycopg.OperationalError):
            answer.result(timeout=30)
    (claim,) = run(stage.conn, claim_as("worker"))

    again = run(stage.conn, submission())

    assert (again.job_id, again.existing) == (claim.job_id, True)
    assert stage.count("FROM faultline.jobs") == 1
    assert stage.job(claim.job_id).state == "running"  # it is not queued a second time


def test_when_the_first_submission_is_rolled_back_the_one_that_waited_takes_its_place(
    stage: Stage, connect: Connect
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
    assert stage.conn.execute("SELECT id FROM faultline.jobs").fetchall() == [(taken.job_id,)]
