"""Measures Faultline with large tables, held snapshots, and many idle workers."""

from benchmarks.scaling.section import run

__all__ = ["run"]
