"""The soak: a whole system at work for minutes or hours, with a nemesis at large."""

from faultline.drills.soak.report import SoakReport
from faultline.drills.soak.settings import SoakSettings
from faultline.drills.soak.soak import Progress, run_soak

__all__ = ["Progress", "SoakReport", "SoakSettings", "run_soak"]
