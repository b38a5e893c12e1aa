"""The nemesis: injects faults into a running system, drawn from one seed."""

from faultline_drills.nemesis.faults import FAULTS, NemesisFault, available_faults
from faultline_drills.nemesis.nemesis import Nemesis, draw_faults
from faultline_drills.nemesis.network import ProxiedNetwork
from faultline_drills.nemesis.processes import NemesisProcesses
from faultline_drills.nemesis.targets import FaultTargets

__all__ = [
    "FAULTS",
    "FaultTargets",
    "Nemesis",
    "NemesisFault",
    "NemesisProcesses",
    "ProxiedNetwork",
    "available_faults",
    "draw_faults",
]
