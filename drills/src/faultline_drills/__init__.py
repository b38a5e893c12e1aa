"""Failure drills, the demo and the benchmark, with real processes and PostgreSQL."""

__version__ = "0.1.0"
