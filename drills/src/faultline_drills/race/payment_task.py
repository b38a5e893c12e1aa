"""The task of the race: a payment, with a stall or crash set by the environment.

The handler writes the payment in its own transaction, with the fenced commit as the last statement,
so that a refused commit rolls the payment back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import psycopg

from faultline import Faultline, Job

BEHAVIOUR_VARIABLE = "FAULTLINE_RACE_BEHAVIOUR"
WAIT_SECONDS = 30.0

app = Faultline()


@app.task(name="race.charge", max_attempts=10)
async def charge(job: Job, account: str, amount: int) -> None:
    behaviour = os.environ.get(BEHAVIOUR_VARIABLE, "steady")
    async with await psycopg.AsyncConnection.connect(app.database_url, autocommit=True) as conn:
        await open_barrier(conn, f"started-{job.token}")
        if behaviour == "stalls":
            os.kill(os.getpid(), signal.SIGSTOP)  # stops every thread, including heartbeats
        elif behaviour == "waits":
            await wait_for_barrier(conn, "go")
        elif behaviour == "crashes_before_commit":
            os.kill(os.getpid(), signal.SIGKILL)
        async with conn.transaction():
            await conn.execute(
                "INSERT INTO race.payments (job_id, token, account, amount) VALUES (%s, %s, %s, %s)",
                [job.id, job.token, account, amount],
            )
            await job.commit(conn)
        if behaviour == "crashes_after_commit":
            os.kill(os.getpid(), signal.SIGKILL)


async def open_barrier(conn: psycopg.AsyncConnection[Any], name: str) -> None:
    await conn.execute(
        "INSERT INTO race.barriers (name) VALUES (%s) ON CONFLICT DO NOTHING", [name]
    )


async def wait_for_barrier(
    conn: psycopg.AsyncConnection[Any], name: str, timeout_seconds: float = WAIT_SECONDS
) -> None:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        found = await conn.execute("SELECT FROM race.barriers WHERE name = %s", [name])
        if found.rowcount:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"the barrier {name!r} was not opened within {timeout_seconds:g} s")
