"""A queue that reads before it inserts creates fifty jobs for one key.

The missing guard is the unique index.
"""

from __future__ import annotations

from tests.failure_modes.conftest import Apply
from tests.failure_modes.patches import CHECK_THEN_ENQUEUE
from tests.failure_modes.submissions import SUBMITTERS, submit_at_once
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import Connect


def test_a_queue_that_reads_before_it_inserts_accepts_one_key_fifty_times(
    database: ObservedDatabase, connect: Connect, apply: Apply
) -> None:
    apply(CHECK_THEN_ENQUEUE)

    answers = submit_at_once(database, connect)

    assert {answer.existing for answer in answers} == {False}
    assert database.count("FROM faultline.jobs") == SUBMITTERS
