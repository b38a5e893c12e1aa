"""A plain script: enqueues the files of a folder, and works until all are done.

Run it again after a crash: it continues where it was.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg

import faultline

app = faultline.Faultline()
UNFINISHED = (faultline.JobState.QUEUED, faultline.JobState.RUNNING)


@app.task(name="script.measure", max_attempts=3)
def measure(job: faultline.Job, path: str) -> None:
    size = Path(path).stat().st_size
    with job.transaction() as tx:
        tx.execute("insert into sizes (path, bytes) values (%s, %s)", [path, size])
    if os.environ.get("CRASH") and size == 2:
        os._exit(1)  # as if the machine had failed


def main(folder: str) -> None:
    with psycopg.connect(app.database_url) as conn:
        conn.execute("create table if not exists sizes (path text, bytes bigint)")
    for path in sorted(Path(folder).iterdir()):
        measure.options(idempotency_key=f"measure {path}").enqueue(path=str(path))
    left = sum(app.jobs(state=state, task=measure.name).count() for state in UNFINISHED)
    if left:
        app.run_worker(concurrency=4, max_jobs=left)
    app.close()


if __name__ == "__main__":
    main(sys.argv[1])
