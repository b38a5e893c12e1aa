"""How fast Faultline is on one PostgreSQL: a minute of measurements on a scratch database."""

from faultline_drills.bench.bench import STEPS, BenchReport, run_bench
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.measurements import Measurement, Rate, Times

__all__ = ["STEPS", "BenchReport", "BenchSettings", "Measurement", "Rate", "Times", "run_bench"]
