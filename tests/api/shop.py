"""An application for a server that is given one."""

from __future__ import annotations

import faultline

app = faultline.Faultline()


@app.task(name="charge", queue="billing", priority=2, max_attempts=3)
def charge(job: faultline.Job, invoice: int, currency: str = "EUR") -> None: ...
