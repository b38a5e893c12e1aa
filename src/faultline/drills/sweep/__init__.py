"""The crash sweep: a process struck at every message that it sends."""

from faultline.drills.sweep.outcome import PointResult, SweepReport
from faultline.drills.sweep.point import Fault, Label, Point, Target
from faultline.drills.sweep.sweep import Ground, SweepSettings, choose, ground, sweep

__all__ = [
    "Fault",
    "Ground",
    "Label",
    "Point",
    "PointResult",
    "SweepReport",
    "SweepSettings",
    "Target",
    "choose",
    "ground",
    "sweep",
]
