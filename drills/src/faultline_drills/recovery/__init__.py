"""Measures how long a killed worker's job takes to run elsewhere."""

from faultline_drills.recovery.recovery_time import RecoveryReport, measure_recovery

__all__ = ["RecoveryReport", "measure_recovery"]
