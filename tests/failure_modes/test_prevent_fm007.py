"""Two guards after a failover: another epoch in the token, and another lease id."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline import StaleLease
from faultline.statements.epochs import COUNTER_BITS
from tests.failure_modes.forgetful_failover import Failover, failover
from tests.failure_modes.holder_writes import pay, write_step
from tests.failure_modes.patches import NO_EPOCH, TOKEN_ALONE


def test_no_token_that_the_lost_primary_issued_is_issued_again(home: Path) -> None:
    with failover(home, TOKEN_ALONE) as after:
        assert after.zombie.fencing_token == 1
        assert after.holder.fencing_token > 1 << COUNTER_BITS
        _assert_only_the_holder_writes(after)


@pytest.mark.slow
def test_a_claim_lost_in_a_failover_is_refused_even_under_the_current_token(
    home: Path,
) -> None:
    with failover(home, NO_EPOCH) as after:
        assert after.zombie.fencing_token == after.holder.fencing_token == 1
        assert after.zombie.lease_id != after.holder.lease_id
        _assert_only_the_holder_writes(after)


def _assert_only_the_holder_writes(after: Failover) -> None:
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
