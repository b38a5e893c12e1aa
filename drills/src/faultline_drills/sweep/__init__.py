"""The crash sweep: injects a fault at every message that a process sends."""

from faultline_drills.sweep.point import MessageLabel, SweepFault, SweepPoint, SweepTarget
from faultline_drills.sweep.results import PointResult, SweepReport
from faultline_drills.sweep.sweep import PointRunner, SweepSettings, choose, point_runner, sweep

__all__ = [
    "MessageLabel",
    "PointResult",
    "PointRunner",
    "SweepFault",
    "SweepPoint",
    "SweepReport",
    "SweepSettings",
    "SweepTarget",
    "choose",
    "point_runner",
    "sweep",
]
