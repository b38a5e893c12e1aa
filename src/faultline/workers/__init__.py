"""Worker processes: claim, run, commit under the fence, stop cleanly."""

from faultline.workers.worker import Worker

__all__ = ["Worker"]
