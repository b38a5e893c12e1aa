"""The second sending is refused as a whole: the ledger has the job, so the writes must not stand."""

from __future__ import annotations

from faultline import StaleLease
from faultline_drills.proxy import Proxy
from tests.failure_modes.blind_client import BlindClient, lose_the_answer
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claimed


def test_a_commit_that_is_sent_again_is_refused_with_all_that_came_with_it(
    database: ObservedDatabase, proxy: Proxy
) -> None:
    (claim,) = claimed(database.conn)
    client = BlindClient(proxy.url, claim)

    lose_the_answer(client, database, proxy)

    assert client.tries == 2
    assert isinstance(client.refusal, StaleLease)
    assert client.refusal.reason == "already_committed"
    assert database.payments(claim.job_id) == 1
    database.assert_in_order()
