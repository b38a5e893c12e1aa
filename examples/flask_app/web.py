"""A Flask application whose view enqueues a job in its own transaction."""

from __future__ import annotations

import os

import psycopg
from flask import Flask, abort, request
from jobs import send

web = Flask(__name__)


@web.post("/invoices/<int:invoice>")
def create(invoice: int) -> tuple[dict[str, object], int]:
    with psycopg.connect(os.environ["DATABASE_URL"]) as conn:  # commits at the end of the block
        conn.execute("insert into invoices (id) values (%s)", [invoice])
        enqueued = send.options(conn=conn).enqueue(invoice=invoice)
        if "fail" in request.args:
            abort(409)  # rolls back the invoice, and the job with it
    return {"job": str(enqueued.job_id)}, 201
