"""The nemesis: what strikes a running system, drawn from one seed."""

from faultline_drills.nemesis.battlefield import Battlefield
from faultline_drills.nemesis.faults import FAULTS, Fault, available_faults
from faultline_drills.nemesis.nemesis import Nemesis, drawn
from faultline_drills.nemesis.network import Network
from faultline_drills.nemesis.roster import Roster

__all__ = [
    "FAULTS",
    "Battlefield",
    "Fault",
    "Nemesis",
    "Network",
    "Roster",
    "available_faults",
    "drawn",
]
