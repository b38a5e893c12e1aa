"""No interleaving of any program breaks a rule, and the events do happen."""

from __future__ import annotations

import pytest

from faultline_drills.explorer import PROGRAMS, explore
from tests.proof import Tally
from tests.slow import slow_unless

INTERLEAVINGS = 56
MORE_INTERLEAVINGS = {
    "late-heartbeat": 120,  # its takeover happens late: this is all of them
    # Only a claim that stays open makes others wait.
    "limit-change": 100,
    "limit-keys": 100,
    "limit-keys-change": 200,
}
RACE = ("takeovers", "stale_rejections", "commits", "lock_waits")
# The events that a program's interleavings must contain, or they show nothing.
REQUIRED_EVENTS = {
    "takeover": RACE,
    "own-transaction": RACE,
    "three-workers": ("takeovers", "stale_rejections", "commits"),
    "heartbeat": ("takeovers", "stale_rejections", "commits"),
    "late-heartbeat": RACE,
    "stale-failure-report": RACE,
    "late-release": RACE,
    "late-snooze": RACE,
    "snooze-last-attempt": ("stale_rejections", "commits"),
    "snooze-and-cancel": ("stale_rejections", "commits", "lock_waits"),
    "repeatable-read": ("stale_rejections", "commits", "lock_waits"),
    "mistaken-for-dead": RACE,
    "reconcilers": ("stale_rejections", "commits"),
    "cancel": ("stale_rejections", "commits", "lock_waits"),
    "cancel-expired": ("stale_rejections", "lock_waits"),
    "retry": RACE,
    "last-attempt": ("stale_rejections", "commits", "lock_waits"),
    "idempotency-key": ("commits", "lock_waits"),
    "unique-job": ("commits", "lock_waits"),
    "unique-replace": ("commits", "lock_waits"),
    "unique-retry": ("commits", "lock_waits"),
    "batch": ("takeovers", "stale_rejections", "commits"),
    "batch-and-heartbeat": ("stale_rejections", "commits"),
    "three-claimants": ("commits",),
    "batch-handler": RACE,
    "batch-handlers": RACE,
    "batch-handler-step": ("takeovers", "stale_rejections", "commits"),
    "batch-handler-and-heartbeat": ("stale_rejections", "commits", "lock_waits"),
    "batch-handler-isolated": ("stale_rejections", "commits", "lock_waits"),
    "batch-handler-fails-one": ("takeovers", "stale_rejections", "commits"),
    "batch-handler-crash": ("takeovers", "commits", "kills"),
    "batch-handler-lost-reply": ("takeovers", "stale_rejections", "commits", "unknown_commits"),
    "batch-handler-late-commit": ("commits", "lock_waits", "unknown_commits"),
    "sql-clients": RACE,
    "repeated-commit": RACE,
    "fenced-step": RACE,
    "crash": ("takeovers", "stale_rejections", "commits", "kills"),
    "ended-session": (*RACE, "kills"),
    "lost-reply": (*RACE, "unknown_commits"),
    "late-commit": ("takeovers", "commits", "lock_waits", "unknown_commits"),
    "lost-batch": ("takeovers", "stale_rejections", "commits", "unknown_commits"),
    "late-batch": ("takeovers", "stale_rejections", "commits", "unknown_commits"),
    "limit-claims": ("commits", "lock_waits"),
    "limit-takeover": ("takeovers", "stale_rejections", "commits"),
    "limit-failures": ("stale_rejections", "commits", "lock_waits"),
    "limit-change": ("commits", "lock_waits"),
    "limit-two": ("stale_rejections", "commits"),
    "limit-five": ("takeovers", "stale_rejections", "commits", "kills"),
    "limit-keys": ("commits", "lock_waits"),
    "limit-keys-change": ("commits", "lock_waits"),
    "limit-lines": ("stale_rejections", "commits"),
    "limit-crash": ("commits", "kills"),
    "limit-batch": ("takeovers", "stale_rejections", "commits"),
    "limit-repair": ("commits", "lock_waits"),
    "schedule-race": ("commits",),
    "schedule-crash": ("commits", "kills"),
    "schedule-change": ("commits", "lock_waits"),
    "schedule-run-now": ("commits", "lock_waits", "manual_firings"),
    "any-lost-reply": ("takeovers", "stale_rejections", "commits", "faults"),
}


def test_each_program_has_required_events() -> None:
    assert set(REQUIRED_EVENTS) == set(PROGRAMS)


@pytest.mark.parametrize(
    "program",
    slow_unless(
        PROGRAMS,
        *("takeover", "own-transaction", "heartbeat", "mistaken-for-dead", "reconcilers", "cancel"),
        *(
            "batch-handler",
            "crash",
            "lost-reply",
            "batch",
            "limit-claims",
        ),
        *("unique-job", "unique-replace", "schedule-run-now"),
    ),
)
def test_no_interleaving_breaks_a_rule(database_url: str, tally: Tally, program: str) -> None:
    interleavings = MORE_INTERLEAVINGS.get(program, INTERLEAVINGS)
    report = explore(database_url, [program], max_preemptions=2, max_interleavings=interleavings)
    assert report.counterexample is None
    counts = report.counts
    assert [name for name in REQUIRED_EVENTS[program] if not counts[name]] == []
    tally(
        "explorer interleaving",
        scenarios=report.interleavings,
        takeovers=counts["takeovers"],
        stale_rejections=counts["stale_rejections"],
        commits=counts["commits"],
        kills=counts["kills"],
        unknown_commits=counts["unknown_commits"],
    )


def test_a_search_for_completeness_ends_without_random_interleavings(database_url: str) -> None:
    report = explore(database_url, ["cancel"], max_preemptions=0, only_complete=True, seed=1)
    [program] = report.programs
    assert program.complete_bound == program.most_preemptions == 0
    assert program.interleavings < 20
    further = explore(database_url, ["cancel"], max_preemptions=0, max_interleavings=60, seed=1)
    assert further.programs[0].most_preemptions > 0
