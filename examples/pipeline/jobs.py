"""Three tasks: split a document, count the words of each line, add them up."""

from __future__ import annotations

import os
import time

import psycopg

import faultline

app = faultline.Faultline()
SECONDS_PER_LINE = 0.4


@app.task(name="pipeline.split")
def split(job: faultline.Job, document: int) -> None:
    with job.transaction() as tx:  # all children or none, and never twice
        query = "select line from lines where document = %s"
        lines = [line for (line,) in tx.execute(query, [document])]
        tx.execute("insert into documents (id, lines_left) values (%s, %s)", [document, len(lines)])
        app.enqueue_many([count.job(document=document, line=line) for line in lines], conn=tx)


def words_of(text: str) -> int:
    """Take long, so that there is a moment at which a worker can stall or die."""
    time.sleep(SECONDS_PER_LINE)
    return len(text.split())


@app.task(name="pipeline.count")
def count(job: faultline.Job, document: int, line: int) -> None:
    with psycopg.connect(app.database_url) as conn:
        query = "select text from lines where document = %s and line = %s"
        [(text,)] = conn.execute(query, [document, line]).fetchall()
    words = words_of(text)
    if os.environ.get("NAIVE"):
        with psycopg.connect(app.database_url) as conn:  # commits by itself, without the fence
            add_count(conn, document, line, words)
    else:
        with job.transaction() as tx:
            add_count(tx, document, line, words)


def add_count(tx: psycopg.Connection, document: int, line: int, words: int) -> None:
    """Store a count; the last one enqueues the job that adds them up."""
    tx.execute(
        "insert into counts (document, line, words) values (%s, %s, %s)", [document, line, words]
    )
    took = "update documents set lines_left = lines_left - 1 where id = %s returning lines_left"
    [(left,)] = tx.execute(took, [document]).fetchall()
    if left == 0:
        collect.options(conn=tx).enqueue(document=document)


@app.task(name="pipeline.collect")
def collect(job: faultline.Job, document: int) -> None:
    with job.transaction() as tx:
        added = "insert into totals select document, sum(words) from counts where document = %s group by 1"
        tx.execute(added, [document])
