"""How long a job of a killed worker takes to run elsewhere, at default settings."""

from faultline_drills.recovery.recovery_time import RecoveryReport, measure_recovery

__all__ = ["RecoveryReport", "measure_recovery"]
