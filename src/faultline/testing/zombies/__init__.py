"""The zombie kit: runs your handler while it is killed, stopped, cut off or superseded at each step."""

from faultline.testing.zombies.faults import ALL_FAULTS, Fault
from faultline.testing.zombies.kit import zombies
from faultline.testing.zombies.outside import Outside, TokenRefused
from faultline.testing.zombies.points import Point, PointKind
from faultline.testing.zombies.report import NotExercised, Run, Verdict, ZombieEffect, ZombieReport

__all__ = [
    "ALL_FAULTS",
    "Fault",
    "NotExercised",
    "Outside",
    "Point",
    "PointKind",
    "Run",
    "TokenRefused",
    "Verdict",
    "ZombieEffect",
    "ZombieReport",
    "zombies",
]
