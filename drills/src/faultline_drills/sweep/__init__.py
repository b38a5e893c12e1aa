"""The crash sweep: a process struck at every message that it sends."""

from faultline_drills.sweep.outcome import PointResult, SweepReport
from faultline_drills.sweep.point import Fault, Label, Point, Target
from faultline_drills.sweep.sweep import Ground, SweepSettings, choose, ground, sweep

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
