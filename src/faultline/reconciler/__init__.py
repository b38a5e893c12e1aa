"""Recovery: requeues jobs of dead workers and purges old rows."""

from faultline.reconciler.reconciler import Reconciler

__all__ = ["Reconciler"]
