"""Schedules under drills: scheduler processes, and what their firings must be."""

from faultline_drills.schedules.expectations import (
    expect_agreement,
    expect_firings,
    expect_once,
    wait_for_firings,
)
from faultline_drills.schedules.fleet import SchedulerFleet, put_schedule

__all__ = [
    "SchedulerFleet",
    "expect_agreement",
    "expect_firings",
    "expect_once",
    "put_schedule",
    "wait_for_firings",
]
