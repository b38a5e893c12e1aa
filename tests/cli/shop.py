"""An application for tests of the command line."""

from __future__ import annotations

from faultline import Faultline, Job

app = Faultline()


@app.task(name="shop.charge", queue="billing")
def charge(job: Job, invoice: int) -> None:
    """Never run by these tests."""
