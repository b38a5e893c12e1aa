"""A page of jobs that match a filter, searched for until it is full or a bound is reached.

A task's name is in no index, so jobs are looked at one by one. One statement looks at a bounded number of
them; this goes on with the next until the page is full, the list ends, or the time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from faultline.inspector import job_pages
from faultline.inspector.job_pages import JobFilter, JobSummary
from faultline.inspector.reader import Look

SEARCH_SECONDS = 2.0
SEARCHED_JOBS = 1_000_000
STEP_JOBS = 20_000  # at a time, after the first statement has not filled the page


@dataclass(frozen=True, slots=True)
class Search:
    """`searched_until` is null when the list was searched to its end, or the page is full."""

    jobs: list[JobSummary]
    next: str | None
    searched: int
    searched_until: datetime | None


async def search(
    look: Look,
    wanted: JobFilter,
    *,
    limit: int,
    after: str | None = None,
    seconds: float = SEARCH_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Search:
    deadline = clock() + seconds
    page = await look.read(job_pages.page(wanted, limit=limit, after=after))
    jobs, searched = page.jobs, page.looked_at
    while page.is_cut_short and clock() < deadline and searched < SEARCHED_JOBS:
        page = await look.read(
            job_pages.page(wanted, limit=limit - len(jobs), after=page.next, look_at=STEP_JOBS)
        )
        jobs += page.jobs
        searched += page.looked_at
    return Search(jobs, page.next, searched, page.last_at if page.is_cut_short else None)
