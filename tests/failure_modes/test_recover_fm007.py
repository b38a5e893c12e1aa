"""A job whose claim was lost in a failover runs on the new primary, and ends once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faultline import StaleLease
from faultline.model import Renewal
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement
from tests.failure_modes.failure_mode_fleet import FailureModeFleet
from tests.failure_modes.forgetful_failover import failover
from tests.failure_modes.holder_writes import pay
from tests.races.stepper import LEASE_SECONDS, expire


def test_a_worker_on_the_new_primary_finishes_a_job_that_the_zombie_cannot_renew_or_release(
    home: Path,
) -> None:
    with failover(home) as after:
        database, zombie = after.database, after.zombie
        beat = protocol.heartbeat("zombie", [zombie], lease_seconds=LEASE_SECONDS)
        assert run(database.conn, beat).renewals == {zombie.id: Renewal.LOST}
        verbs: list[Statement[Any]] = [
            protocol.fail(zombie, error="late"),
            protocol.release(zombie),
        ]
        for verb in verbs:
            with pytest.raises(StaleLease, match="token_mismatch"):
                run(database.conn, verb)

        expire(database.conn, after.holder)  # the holder is lost as well
        fleet = FailureModeFleet(after.url)
        try:
            fleet.started("--lease-seconds", "600")
            next_token = after.holder.fencing_token + 1
            assert database.wait_for_state(zombie.job_id) == ("succeeded", 2, None, next_token)
        finally:
            fleet.end()
        with pytest.raises(StaleLease):
            pay(database, zombie)
        assert database.payments(zombie.job_id) == 1
        database.assert_in_order()
