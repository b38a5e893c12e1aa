"""A queue drained by hand: claim, commit, claim, commit, on one connection and with no worker around it."""

from __future__ import annotations

import json
import math
import time
from typing import Any

from faultline.postgres.sessions import connect
from faultline.statements.statement import Row

_QUEUE = "default"
_CLAIM = "SELECT job_id, fencing_token, lease_id FROM faultline.claim(%s, '{default}', %s)"
_HINTED_CLAIM = """
    SELECT job_id, fencing_token, lease_id, priority, next_run_at
    FROM faultline.claim(%s, '{default}', %s, past => %s::jsonb)
"""
_COMMIT = "SELECT outcome FROM faultline.commit_many(%s, %s, %s)"


def drain_by_hand(
    url: str,
    worker: str,
    *,
    at_once: int,
    hinted: bool = False,
    jobs: float = math.inf,
    deadline: float = math.inf,
) -> None:
    """Until the queue is empty, so many `jobs` are done, or the time is up."""
    past: dict[str, list[Any]] = {}
    done = 0
    with connect(url, application_name="faultline bench") as conn:
        while done < jobs and time.monotonic() < deadline:
            wanted = int(min(at_once, jobs - done))
            if hinted:
                hint = json.dumps({_QUEUE: past}) if past else None
                taken = conn.execute(_HINTED_CLAIM, [worker, wanted, hint]).fetchall()
                past |= _how_far(taken)
            else:
                taken = conn.execute(_CLAIM, [worker, wanted]).fetchall()
            if not taken:
                return
            conn.execute(_COMMIT, [[row[column] for row in taken] for column in range(3)])
            done += len(taken)


def _how_far(taken: list[Row]) -> dict[str, list[Any]]:
    """The last job of each priority: they come in order."""
    return {str(row[3]): [row[4].isoformat(), str(row[0])] for row in taken}
