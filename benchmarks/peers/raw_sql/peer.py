"""Faultline's SQL functions in a bare loop without a worker: the upper limit."""

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from faultline.postgres.migrate import migrate

sys.path.append(str(Path(__file__).parents[1]))
import roles

BATCH = 100
IDLE_SECONDS = 0.005

CLAIM = """
    SELECT job_id, fencing_token, lease_id, task, payload::text
    FROM faultline.claim('raw', '{default}', %s, '1 minute')
"""
# Rows that another session's claim has locked are reported as locked, and sent once more.
COMMIT_MANY = "SELECT job_id FROM faultline.commit_many(%s, %s, %s) WHERE outcome = 'locked'"
# The user's write, the fenced commit and the claim of the next job: one round trip, one transaction.
WRITE_COMMIT_CLAIM = f"""
    WITH effect AS (INSERT INTO bench_effects (n) VALUES (%s))
    SELECT next.* FROM faultline.commit(%s, %s, %s) LEFT JOIN ({CLAIM}) AS next ON true
"""  # noqa: S608 - both parts are above
ENQUEUE = "SELECT count(*) FROM faultline.enqueue_many(%s, %s::text[]::jsonb[])"

stopped = threading.Event()


def connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, prepare_threshold=0)


def prepare(url: str) -> None:
    migrate(url)


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    with connect(url) as conn:
        conn.execute(ENQUEUE, [asked.task, []])

        def many(payloads: list[roles.Payload]) -> None:
            conn.execute(ENQUEUE, [asked.task, [json.dumps(payload) for payload in payloads]])

        await roles.send(asked, lambda payload: many([payload]), many)


def work(url: str, concurrency: int) -> None:
    """The first job tells which loop is wanted."""
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with connect(url) as conn:
        while not stopped.is_set():
            rows = conn.execute(CLAIM, [1]).fetchall()
            if not rows:
                stopped.wait(IDLE_SECONDS)
                continue
            roles.note_start(json.loads(rows[0][4]))
            if rows[0][3] == "write":
                in_threads(url, concurrency, rows)
            else:
                drain(conn, rows)


def drain(conn: psycopg.Connection[Any], rows: list[tuple[Any, ...]]) -> None:
    while not stopped.is_set():
        if rows:
            ids, tokens, leases, _, _ = map(list, zip(*rows, strict=True))
            locked = {job_id for (job_id,) in conn.execute(COMMIT_MANY, [ids, tokens, leases])}
            rows = [row for row in rows if row[0] in locked] if locked else []
        else:
            stopped.wait(IDLE_SECONDS)
        rows += conn.execute(CLAIM, [BATCH]).fetchall()


def in_threads(url: str, connections: int, rows: list[tuple[Any, ...]]) -> None:
    def loop(row: tuple[Any, ...] | None) -> None:
        with connect(url) as conn:
            write(conn, row)

    first: list[tuple[Any, ...] | None] = [rows[0], *[None] * (connections - 1)]
    threads = [threading.Thread(target=loop, args=[row]) for row in first]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write(conn: psycopg.Connection[Any], row: tuple[Any, ...] | None) -> None:
    while not stopped.is_set():
        if row is None or row[0] is None:
            row = conn.execute(CLAIM, [1]).fetchone()
            if row is None:
                time.sleep(IDLE_SECONDS)
            continue
        job_id, token, lease, _, payload = row
        effect = json.loads(payload)["n"]
        row = conn.execute(WRITE_COMMIT_CLAIM, [effect, job_id, token, lease, 1]).fetchone()


if __name__ == "__main__":
    roles.main(prepare=prepare, enqueue=enqueue, work=work)
