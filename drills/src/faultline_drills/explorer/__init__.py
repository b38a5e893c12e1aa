"""The interleaving explorer: runs real sessions in systematically chosen orders."""

from faultline_drills.explorer import (  # they add their programs to PROGRAMS
    batch_programs,
    limit_programs,
    schedule_programs,
)
from faultline_drills.explorer.explorer import ExploreReport, ProgramReport, explore
from faultline_drills.explorer.programs import PROGRAMS

__all__ = [
    "PROGRAMS",
    "ExploreReport",
    "ProgramReport",
    "batch_programs",
    "explore",
    "limit_programs",
    "schedule_programs",
]
