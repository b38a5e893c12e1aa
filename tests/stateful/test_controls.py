"""Controls: the state machine finds every guard that is removed.

Those that take longer to find run if `FAULTLINE_ALL_MUTANTS` is set.
"""

from __future__ import annotations

import os

import psycopg
import pytest
from hypothesis import Phase

from faultline.errors import FaultlineError
from tests.slow import slow_unless
from tests.stateful.mutants import MUTANTS, ProtocolMutant
from tests.stateful.system import SystemUnderTest
from tests.stateful.test_stateful import EXAMPLES, play

# An answer that the model did not give, or a refusal by another guard that the model did not expect.
# A broken patch is neither: it would raise a syntax error, or one of many others.
NOTICED = (
    AssertionError,
    pytest.fail.Exception,
    FaultlineError,
    psycopg.errors.UniqueViolation,
)


CHOSEN = [each for each in MUTANTS if each.is_quick or "FAULTLINE_ALL_MUTANTS" in os.environ]


@pytest.mark.parametrize("mutant", slow_unless(CHOSEN, *CHOSEN[:3]), ids=lambda mutant: mutant.name)
def test_the_machine_notices_that_a_guard_is_missing(
    system: SystemUnderTest, mutant: ProtocolMutant
) -> None:
    system.conn.execute(mutant.sql().encode())
    with pytest.raises(NOTICED):
        play(system, examples=EXAMPLES, phases=[Phase.generate])
    assert system.tally["examples"] > 0
