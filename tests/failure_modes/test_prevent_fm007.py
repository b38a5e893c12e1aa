"""The lease id is drawn anew at every claim: the same number from another history does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline import StaleLease
from tests.failure_modes.clusters import failover
from tests.failure_modes.two_holders import pay, write_step


def test_a_claim_that_a_failover_forgot_does_not_hold_although_its_number_is_current(
    home: Path,
) -> None:
    with failover(home) as after:
        zombie, holder = after.zombie, after.holder
        assert zombie.job_id == holder.job_id
        assert zombie.fencing_token == holder.fencing_token == 1
        assert zombie.lease_id != holder.lease_id

        with pytest.raises(StaleLease, match="token_mismatch"):
            write_step(after.stage, zombie, "zombie")
        with pytest.raises(StaleLease, match="token_mismatch"):
            pay(after.stage, zombie)

        write_step(after.stage, holder, "holder")
        pay(after.stage, holder)
        assert after.stage.conn.execute("SELECT worker FROM steps").fetchall() == [("holder",)]
        assert after.stage.payments(holder.job_id) == 1
        after.stage.assert_in_order()
