"""Fault injection for handlers: crashes, pauses, takeovers, lost connections."""

from faultline.testing.zombies.outside import Outside, TokenRefused
from faultline.testing.zombies.points import ALL_FAULTS, Fault, Point, PointKind
from faultline.testing.zombies.report import NotExercised, Run, Verdict, ZombieEffect, ZombieReport
from faultline.testing.zombies.runner import zombies

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
