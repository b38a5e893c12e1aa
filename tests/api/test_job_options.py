"""POST /jobs takes the options of one job, as `task.options` does."""

from __future__ import annotations

from typing import Any

import httpx2
import psycopg
import pytest

from tests.api.served import code_of


def test_the_options_of_a_job_are_stored(
    client: httpx2.Client, api_conn: psycopg.Connection[Any]
) -> None:
    options = {"delay": 60, "expires_in": 3600, "timeout": 1.5, "lease": 90}
    answer = client.post("/jobs", json={"task": "t", **options})
    assert answer.status_code == 201
    row = api_conn.execute(
        """
        SELECT overrides, extract(epoch FROM next_run_at - created_at)::integer,
               extract(epoch FROM expires_at - created_at)::integer
        FROM faultline.jobs WHERE id = %s
        """,
        [answer.json()["job_id"]],
    ).fetchone()
    assert row == ({"timeout": 1.5, "lease": 90}, 60, 3600)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"delay": -1}, "delay"),
        ({"delay": "60"}, "delay"),
        ({"delay": True}, "delay"),
        ({"expires_in": 0}, "expires_in"),
        ({"timeout": 0}, "timeout"),
        ({"lease": 700_000}, "lease"),
        ({"delay": 1, "run_at": "2030-01-31T09:00:00+01:00"}, "run_at and delay"),
        ({"delay": 60, "expires_in": 60}, "expire before it is due"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    client: httpx2.Client, options: dict[str, Any], named: str
) -> None:
    answer = client.post("/jobs", json={"task": "t", **options})
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert named in answer.text
