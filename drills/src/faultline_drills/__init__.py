"""Failure drills, the demo and the benchmark, on real processes and a real PostgreSQL."""

__version__ = "0.1.0"
