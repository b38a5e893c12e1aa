"""Measures Faultline with large and old tables, held snapshots, and many or idle workers."""

from benchmarks.scaling.section import run

__all__ = ["run"]
