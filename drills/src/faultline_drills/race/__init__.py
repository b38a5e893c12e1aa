"""The stale-worker race: A stalls past its lease, B takes over, A resumes."""

from faultline_drills.race.race_runner import RaceBehaviour, RaceReport, RaceSettings, run_race
from faultline_drills.race.race_timeline import RaceEvent

__all__ = ["RaceBehaviour", "RaceEvent", "RaceReport", "RaceSettings", "run_race"]
