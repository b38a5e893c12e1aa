"""Recovery: requeues the jobs of dead workers, purges old rows, checks the invariants."""

from faultline.reconciler.reconciler import Reconciler

__all__ = ["Reconciler"]
