"""Recovery: who is dead, what they hold, and whether the books are in order."""

from faultline.reconciler.reconciler import Reconciler

__all__ = ["Reconciler"]
