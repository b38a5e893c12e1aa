"""A repeated transaction is refused as a whole, because the ledger has the job."""

from __future__ import annotations

from faultline import StaleLease
from faultline_drills.proxy import Proxy
from tests.failure_modes.repeating_client import RepeatingClient, lose_the_reply
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claimed


def test_a_repeated_commit_is_refused_with_its_whole_transaction(
    database: ObservedDatabase, proxy: Proxy
) -> None:
    (claim,) = claimed(database.conn)
    client = RepeatingClient(proxy.url, claim)

    lose_the_reply(client, database, proxy)

    assert client.tries == 2
    assert isinstance(client.refusal, StaleLease)
    assert client.refusal.reason == "already_committed"
    assert database.payments(claim.job_id) == 1
    database.assert_in_order()
