"""An outage is logged when it begins and ends, and again while it lasts."""

from __future__ import annotations

import pytest

from faultline.events import log
from faultline.postgres.outage import Outage
from tests.running import EventTap

REFUSED = ConnectionRefusedError("no server is running there")


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outage(clock: Clock) -> Outage:
    return Outage(now=clock)


def fail_for(outage: Outage, clock: Clock, seconds: int) -> None:
    """A session that tries once a second."""
    for _ in range(seconds):
        outage.fail("worker", REFUSED)
        clock.seconds += 1


def names(events: EventTap) -> list[str]:
    return [line["event"] for line in events.all()]


def test_a_short_outage_is_one_line_and_its_end_another(
    outage: Outage, clock: Clock, events: EventTap
) -> None:
    fail_for(outage, clock, 59)
    outage.recover("worker")
    assert names(events) == ["database_unavailable", "database_back"]


def test_an_outage_that_lasts_is_logged_after_a_minute_then_every_five(
    outage: Outage, clock: Clock, events: EventTap
) -> None:
    fail_for(outage, clock, 900)
    reminders = events.of("database_still_unavailable")
    assert [line["away_seconds"] for line in reminders] == [60, 360, 660]
    assert {line["error"] for line in reminders} == {"no server is running there"}
    outage.recover("worker")
    assert names(events)[-1] == "database_back"


def test_sessions_that_fail_together_share_one_reminder(
    outage: Outage, clock: Clock, events: EventTap
) -> None:
    for _ in range(100):
        for purpose in ("worker", "committer", "listener"):
            outage.fail(purpose, REFUSED)
        clock.seconds += 1
    assert names(events) == ["database_unavailable", "database_still_unavailable"]


def test_the_next_outage_is_short_again(outage: Outage, clock: Clock, events: EventTap) -> None:
    fail_for(outage, clock, 400)
    outage.recover("worker")
    clock.seconds += 10
    so_far = len(events.all())
    fail_for(outage, clock, 59)
    assert names(events)[so_far:] == ["database_unavailable"]


@pytest.mark.parametrize(("was_reached", "reminders"), [(False, 2), (True, 1)])
def test_in_a_text_log_a_database_that_was_never_reached_is_named_soon(
    outage: Outage,
    clock: Clock,
    events: EventTap,
    monkeypatch: pytest.MonkeyPatch,
    was_reached: bool,
    reminders: int,
) -> None:
    """After 5 s and after a minute; a database that was there has the minute alone."""
    monkeypatch.setattr(log, "is_json", False)
    if was_reached:
        outage.recover("worker")
    fail_for(outage, clock, 6)
    assert len(events.of("database_still_unavailable")) == reminders - 1
    fail_for(outage, clock, 60)
    assert len(events.of("database_still_unavailable")) == reminders
