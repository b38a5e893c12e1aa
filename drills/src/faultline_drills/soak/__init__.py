"""The soak: a whole system at work for minutes or hours, under a nemesis."""

from faultline_drills.soak.report import SoakReport
from faultline_drills.soak.settings import SoakSettings
from faultline_drills.soak.soak import Progress, run_soak

__all__ = ["Progress", "SoakReport", "SoakSettings", "run_soak"]
