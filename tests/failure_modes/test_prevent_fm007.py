"""Two guards: a claim in another history has another epoch in its token, and another lease id beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline import StaleLease
from faultline.statements.epochs import COUNTER_BITS
from tests.failure_modes.clusters import Failover, failover
from tests.failure_modes.patches import NO_EPOCH, TOKEN_ALONE
from tests.failure_modes.two_holders import pay, write_step


def test_no_number_that_the_lost_primary_gave_out_is_given_out_again(home: Path) -> None:
    with failover(home, TOKEN_ALONE) as after:
        assert after.zombie.fencing_token == 1
        assert after.holder.fencing_token > 1 << COUNTER_BITS
        _only_the_holder_gets_through(after)


@pytest.mark.slow
def test_a_claim_that_a_failover_forgot_does_not_hold_even_under_the_number_that_is_current(
    home: Path,
) -> None:
    with failover(home, NO_EPOCH) as after:
        assert after.zombie.fencing_token == after.holder.fencing_token == 1
        assert after.zombie.lease_id != after.holder.lease_id
        _only_the_holder_gets_through(after)


def _only_the_holder_gets_through(after: Failover) -> None:
    zombie, holder = after.zombie, after.holder
    assert zombie.job_id == holder.job_id
    with pytest.raises(StaleLease, match="token_mismatch"):
        write_step(after.database, zombie, "zombie")
    with pytest.raises(StaleLease, match="token_mismatch"):
        pay(after.database, zombie)

    write_step(after.database, holder, "holder")
    pay(after.database, holder)
    assert after.database.conn.execute("SELECT worker FROM steps").fetchall() == [("holder",)]
    assert after.database.payments(holder.job_id) == 1
    after.database.assert_in_order()
