"""The interleaving explorer: the library's own code on real sessions, in every order that matters."""

from faultline_drills.explorer.explorer import ExploreReport, ProgramReport, explore
from faultline_drills.explorer.programs import PROGRAMS

__all__ = ["PROGRAMS", "ExploreReport", "ProgramReport", "explore"]
