"""Measures the speed of Faultline on a PostgreSQL server, in about a minute."""

from faultline_drills.bench.bench import STEPS, BenchReport, run_bench
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.measurements import MeasuredRate, Measurement, Times
from faultline_drills.bench.recommendations import Recommendation
from faultline_drills.bench.trials import Trials

__all__ = [
    "STEPS",
    "BenchReport",
    "BenchSettings",
    "MeasuredRate",
    "Measurement",
    "Recommendation",
    "Times",
    "Trials",
    "run_bench",
]
