"""Recovery: requeues jobs of dead workers, purges old rows, checks invariants."""

from faultline.reconciler.reconciler import Reconciler

__all__ = ["Reconciler"]
