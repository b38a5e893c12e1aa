"""Every program holds in every schedule that is tried, and what it is about does happen."""

from __future__ import annotations

import pytest

from faultline_drills.explorer import PROGRAMS, explore
from tests.proof import Tally

SCHEDULES = 56
MORE_SCHEDULES = {"late-heartbeat": 120}  # what it is about happens late: this is all of them
RACE = ("takeovers", "stale_rejections", "commits", "lock_waits")
# What has to happen in a program's schedules, or they show nothing.
HAPPENS = {
    "take-over": RACE,
    "own-transaction": RACE,
    "three-workers": ("takeovers", "stale_rejections", "commits"),
    "heartbeat": ("takeovers", "stale_rejections", "commits"),
    "late-heartbeat": RACE,
    "late-failure": RACE,
    "late-release": RACE,
    "one-snapshot": ("stale_rejections", "commits", "lock_waits"),
    "believed-dead": RACE,
    "reconcilers": ("stale_rejections", "commits"),
    "cancel": ("stale_rejections", "commits", "lock_waits"),
    "cancel-of-the-expired": ("stale_rejections", "lock_waits"),
    "retry": RACE,
    "last-attempt": ("stale_rejections", "commits", "lock_waits"),
    "one-key": ("commits", "lock_waits"),
    "batch": ("takeovers", "stale_rejections", "commits"),
    "batch-and-heartbeat": ("stale_rejections", "commits"),
    "fair-shares": ("commits",),
    "bare-clients": RACE,
    "repeated-commit": RACE,
    "step-before": RACE,
    "crash": ("takeovers", "stale_rejections", "commits", "kills"),
    "ended-session": (*RACE, "kills"),
    "lost-answer": (*RACE, "unknown_commits"),
    "late-commit": ("takeovers", "commits", "lock_waits", "unknown_commits"),
    "lost-batch": ("takeovers", "stale_rejections", "commits", "unknown_commits"),
    "late-batch": ("takeovers", "stale_rejections", "commits", "unknown_commits"),
    "any-lost-answer": ("takeovers", "stale_rejections", "commits", "faults"),
}


def test_it_is_said_of_each_program_what_has_to_happen() -> None:
    assert set(HAPPENS) == set(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_schedule_breaks_a_rule(database_url: str, tally: Tally, program: str) -> None:
    schedules = MORE_SCHEDULES.get(program, SCHEDULES)
    report = explore(database_url, [program], max_preemptions=2, max_schedules=schedules)
    assert report.counterexample is None
    counts = report.counts
    assert [name for name in HAPPENS[program] if not counts[name]] == []
    tally(
        "explorer schedule",
        scenarios=report.schedules,
        takeovers=counts["takeovers"],
        stale_rejections=counts["stale_rejections"],
        commits=counts["commits"],
        kills=counts["kills"],
        unknown_commits=counts["unknown_commits"],
    )
