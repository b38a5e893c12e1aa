"""A task that runs in a child process, which makes an engine of its own."""

from __future__ import annotations

import functools
import os

from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from faultline import Faultline, Job
from tests.adapters.alchemy import Payment, engine_for

app = Faultline()


@functools.cache
def engine() -> Engine:
    return engine_for(os.environ["DATABASE_URL"])


@app.task(process=True)
def charge(job: Job) -> None:
    with job.session(lambda: Session(engine())) as session:
        session.add(Payment(invoice=42))
        job.result = os.getpid()
