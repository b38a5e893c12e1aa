"""The stale-worker race: A stalls past its lease, B takes over, A comes back."""

from faultline_drills.race.referee import RaceReport, RaceSettings, Role, run_race
from faultline_drills.race.timeline import RaceEvent

__all__ = ["RaceEvent", "RaceReport", "RaceSettings", "Role", "run_race"]
