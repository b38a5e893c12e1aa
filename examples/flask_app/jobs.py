"""The task that sends an invoice, imported by Flask and by the worker."""

from __future__ import annotations

import faultline

app = faultline.Faultline()


@app.task(name="invoices.send")
def send(job: faultline.Job, invoice: int) -> None:
    with job.transaction() as tx:
        tx.execute("update invoices set sent_at = now() where id = %s", [invoice])
