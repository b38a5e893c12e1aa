"""The task that charges a payment: under the fence, or naively with NAIVE=1."""

from __future__ import annotations

import os
import time

from models import Charge, Session

import faultline
from faultline.adapters.sqlalchemy import use_sessions

app = faultline.Faultline()
use_sessions(app, Session)
WORKER = os.environ.get("WORKER", "?")


RECEIPT_SECONDS = 2.0


def print_receipt() -> None:
    """Take long, so that there is a moment at which a worker can stall."""
    time.sleep(RECEIPT_SECONDS)


if os.environ.get("NAIVE"):

    @app.task(name="payments.charge")
    def charge(job: faultline.Job, payment_id: int) -> None:
        with Session.begin() as session:  # commits by itself; the worker completes the job later
            session.add(Charge(payment_id=payment_id, worker=WORKER))
        print_receipt()

else:

    @app.task(name="payments.charge")
    def charge(job: faultline.Job, payment_id: int) -> None:
        with job.session() as session:  # the charge and the job's success are one commit
            session.add(Charge(payment_id=payment_id, worker=WORKER))
            session.flush()
            print_receipt()
