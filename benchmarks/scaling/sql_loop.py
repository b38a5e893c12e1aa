"""Drains a queue by a loop of claim and commit_many on one connection."""

from __future__ import annotations

import json
import math
import time
from typing import Any

from faultline.postgres.sessions import connect
from faultline.statements.statement import Row

_QUEUE = "default"
_CLAIM = "SELECT job_id, fencing_token, lease_id FROM faultline.claim(%s, '{default}', %s)"
_CLAIM_WITH_CURSOR = """
    SELECT job_id, fencing_token, lease_id, priority, next_run_at
    FROM faultline.claim(%s, '{default}', %s, past => %s::jsonb)
"""
_COMMIT = "SELECT outcome FROM faultline.commit_many(%s, %s, %s)"


def drain_by_sql(
    url: str,
    worker: str,
    *,
    at_once: int,
    with_cursor: bool = False,
    jobs: float = math.inf,
    deadline: float = math.inf,
) -> None:
    """Drain until the queue is empty, `jobs` are done, or the deadline has passed."""
    past: dict[str, list[Any]] = {}
    done = 0
    with connect(url, application_name="faultline bench") as conn:
        while done < jobs and time.monotonic() < deadline:
            batch_size = int(min(at_once, jobs - done))
            if with_cursor:
                cursor = json.dumps({_QUEUE: past}) if past else None
                claimed = conn.execute(_CLAIM_WITH_CURSOR, [worker, batch_size, cursor]).fetchall()
                past |= _cursor_after(claimed)
            else:
                claimed = conn.execute(_CLAIM, [worker, batch_size]).fetchall()
            if not claimed:
                return
            conn.execute(_COMMIT, [[row[column] for row in claimed] for column in range(3)])
            done += len(claimed)


def _cursor_after(claimed: list[Row]) -> dict[str, list[Any]]:
    """Return the last job of each priority; claims return jobs in order."""
    return {str(row[3]): [row[4].isoformat(), str(row[0])] for row in claimed}
