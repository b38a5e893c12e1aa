"""Tests of Django projects: what was enqueued, running jobs, injected faults."""

from faultline.adapters.django.testing.faults import zombies
from faultline.adapters.django.testing.jobs import enqueued_jobs, run_jobs

__all__ = ["enqueued_jobs", "run_jobs", "zombies"]
