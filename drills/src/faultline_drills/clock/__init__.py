"""A wall clock that is wrong, in one process."""

from faultline_drills.clock.shift import lacking, shifted

__all__ = ["lacking", "shifted"]
