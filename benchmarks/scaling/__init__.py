"""How Faultline behaves when its tables are large, old or held, and when its workers are many or idle."""

from benchmarks.scaling.section import run

__all__ = ["run"]
