"""After a failover that lost a claim, its token is issued to a second worker.

The missing guards are the epoch in the token and the lease id in the fence; in the last test, the whole
fence.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from faultline import StaleLease
from tests.failure_modes.forgetful_failover import failover
from tests.failure_modes.holder_writes import pay, write_step
from tests.failure_modes.patches import NO_EPOCH, TOKEN_ALONE


@pytest.mark.slow
def test_with_the_token_alone_the_zombie_and_the_holder_both_write_and_the_zombie_commits(
    home: Path,
) -> None:
    with failover(home, NO_EPOCH + TOKEN_ALONE) as after:
        assert after.zombie.fencing_token == after.holder.fencing_token == 1
        write_step(after.database, after.zombie, "zombie")
        write_step(after.database, after.holder, "holder")
        pay(after.database, after.zombie)  # instead of the holder

        assert after.database.count("FROM steps") == 2
        with pytest.raises(StaleLease, match="already_committed"):
            pay(after.database, after.holder)


@pytest.mark.slow
def test_without_a_fence_the_zombie_and_the_holder_both_commit(home: Path) -> None:
    naive = resources.files("faultline_drills.subjects").joinpath("naive.sql").read_text()
    with failover(home, naive) as after:
        pay(after.database, after.zombie)
        pay(after.database, after.holder)

        assert after.database.payments(after.holder.job_id) == 2
