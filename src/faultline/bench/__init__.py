"""How fast Faultline is on one PostgreSQL: a minute of measurements on a scratch database."""

from faultline.bench.bench import STEPS, BenchReport, run_bench
from faultline.bench.figures import Figure, Rate, Times
from faultline.bench.settings import BenchSettings

__all__ = ["STEPS", "BenchReport", "BenchSettings", "Figure", "Rate", "Times", "run_bench"]
