"""Random sequences of calls have the same result in Faultline and in its model."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.proof import Tally
from tests.slow import slow_unless
from tests.stateful.conftest import MUTANT_VARIABLE
from tests.stateful.machine import Machine
from tests.stateful.system import SystemUnderTest

FEW_EXAMPLES, EXAMPLES = 120, 200
STEPS = 20
SEED = os.environ.get("FAULTLINE_SEED")
# A mutant has to be found; shrinking the example that found it is not needed.
PHASES = [Phase.generate] if MUTANT_VARIABLE in os.environ else [Phase.generate, Phase.shrink]
# Events that a run must have had, or it has shown nothing.
NEEDED = (
    *("commits", "stale_refusals", "takeovers", "conflicts", "repeated_submissions", "expiries"),
    *(
        "reconciled",
        "failures",
        "releases",
        "snoozes",
        "renewals",
        "fenced_writes",
        "tampering_refused",
    ),
)


def play(system: SystemUnderTest, *, examples: int, phases: list[Phase]) -> None:
    def machine() -> Machine:
        return Machine(system)

    if SEED is not None:
        seed(int(SEED))(machine)
    options = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        derandomize=SEED is None,
        database=None,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(cast(Any, machine), settings=options)  # any callable will do


@pytest.mark.timeout(600)  # shrinking a failure takes a while
@pytest.mark.parametrize("examples", slow_unless([FEW_EXAMPLES, EXAMPLES], FEW_EXAMPLES))
def test_faultline_does_what_its_model_does(
    system: SystemUnderTest, tally: Tally, examples: int
) -> None:
    play(system, examples=examples, phases=PHASES)

    tally(
        "stateful example",
        scenarios=system.tally["examples"],
        commits=system.tally["commits"],
        takeovers=system.tally["takeovers"],
        stale_rejections=system.tally["stale_refusals"],
    )
    print(dict(sorted(system.tally.items())))  # shown by pytest -rP
    assert system.tally["examples"] >= examples
    missing = [what for what in NEEDED if not system.tally[what]]
    assert not missing, f"this run has shown nothing about {missing}"
