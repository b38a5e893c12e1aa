"""How fast Faultline is on one PostgreSQL: a minute of measurements on a scratch database."""

from faultline_drills.bench.bench import STEPS, BenchReport, run_bench
from faultline_drills.bench.figures import Figure, Rate, Times
from faultline_drills.bench.settings import BenchSettings

__all__ = ["STEPS", "BenchReport", "BenchSettings", "Figure", "Rate", "Times", "run_bench"]
