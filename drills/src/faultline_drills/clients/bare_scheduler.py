"""A scheduler process without leader election; its argument is the URL."""

from __future__ import annotations

import asyncio
import sys

from faultline.reconciler.scheduler import Scheduler

if __name__ == "__main__":
    asyncio.run(Scheduler(sys.argv[1]).run())
