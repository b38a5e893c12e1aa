"""The COMMIT was carried out, its answer was lost, and the client sends everything again: paid twice."""

from __future__ import annotations

import pytest

from faultline_drills.proxy import Proxy
from tests.failure_modes.blind_client import BlindClient, lose_the_answer
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claimed


@pytest.mark.usefixtures("without_fence")
def test_without_the_fence_a_commit_that_is_sent_again_pays_twice(
    database: ObservedDatabase, proxy: Proxy
) -> None:
    (claim,) = claimed(database.conn)
    client = BlindClient(proxy.url, claim)

    lose_the_answer(client, database, proxy)

    assert client.tries == 2
    assert client.refusal is None  # it believes that all is well
    assert database.payments(claim.job_id) == 2
    assert database.count("FROM faultline.ledger") == 2
