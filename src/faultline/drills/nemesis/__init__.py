"""The nemesis: what strikes a running system, drawn from one seed."""

from faultline.drills.nemesis.battlefield import Battlefield
from faultline.drills.nemesis.faults import FAULTS, Fault, available_faults
from faultline.drills.nemesis.nemesis import Nemesis, drawn
from faultline.drills.nemesis.network import Network
from faultline.drills.nemesis.roster import Roster

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
