"""Wrong wall clocks for single processes, by a preloaded library."""

from faultline_drills.clock.shift import missing_requirement, shifted

__all__ = ["missing_requirement", "shifted"]
