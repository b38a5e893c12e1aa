"""Wrong wall clocks for single processes, by a preloaded library."""

from faultline_drills.clock.shift import lacking, shifted

__all__ = ["lacking", "shifted"]
