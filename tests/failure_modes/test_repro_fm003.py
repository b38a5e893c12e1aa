"""A client that repeats a transaction after a lost reply pays twice."""

from __future__ import annotations

import pytest

from faultline_drills.proxy import Proxy
from tests.failure_modes.repeating_client import RepeatingClient, lose_the_reply
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claimed


@pytest.mark.usefixtures("without_fence")
def test_without_the_fence_a_repeated_commit_pays_twice(
    database: ObservedDatabase, proxy: Proxy
) -> None:
    (claim,) = claimed(database.conn)
    client = RepeatingClient(proxy.url, claim)

    lose_the_reply(client, database, proxy)

    assert client.tries == 2
    assert client.refusal is None  # no error shows it
    assert database.payments(claim.job_id) == 2
    assert database.count("FROM faultline.ledger") == 2
