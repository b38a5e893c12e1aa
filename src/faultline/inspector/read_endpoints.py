"""The GET endpoints. Each reads in one transaction, or shares the latest snapshot."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request
from fastapi import Path as PathPart

from faultline.inspector import actions, documents, schedule_documents
from faultline.inspector.documents import SearchPage
from faultline.inspector.responses import Json
from faultline.inspector.services import Shared
from faultline.model import JobState
from faultline.statements import job_pages, rejections
from faultline.statements import jobs as job_statements
from faultline.statements import limits as limit_statements
from faultline.statements.audit import AuditFilter
from faultline.statements.audit import page as audit_page
from faultline.statements.job_filter import JobFilter

LARGEST_PAGE = 1_000
REPORT_NAMES = ("benchmark_summary", "performance")
LARGEST_REPORT_BYTES = 2**20

Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]
Cursor = Annotated[str | None, Query(max_length=500)]
Name = Annotated[str | None, Query(min_length=1, max_length=255, pattern="^[^\\x00]*$")]

router = APIRouter(prefix="/api")


@router.get("/about")
async def about(request: Request, shared: Shared) -> Json:
    """The version, and whether actions are enabled. Does not read the database."""
    return Json(
        {
            "version": shared.settings.version,
            "actions": shared.has_actions and actions.is_possible_operator(request, shared),
            "needs_key": shared.send_action is None,
            "acts_as": shared.reader.acts_as,
        }
    )


@router.get("/overview")
async def overview(shared: Shared) -> Json:
    return Json((await shared.snapshots.latest()).document)


@router.get("/risk")
async def risk(shared: Shared) -> Json:
    return Json((await shared.snapshots.latest()).document["risk"])


@router.get("/leases")
async def leases(shared: Shared, limit: Limit = 100, after: Cursor = None) -> Json:
    async with shared.reader.transaction() as tx:
        page = await documents.lease_page(tx, limit=limit, after=after)
    return Json(page)


@router.get("/workers")
async def workers(shared: Shared) -> Json:
    return Json({"workers": (await shared.snapshots.latest()).data.workers})


@router.get("/queues")
async def queues(shared: Shared) -> Json:
    async with shared.reader.transaction() as tx:
        found = await documents.queue_counts(tx)
    return Json(found)


@router.get("/limits")
async def limits(shared: Shared) -> Json:
    async with shared.reader.transaction() as tx:
        found = await tx.read(limit_statements.uses())
    return Json({"limits": [limit_statements.as_facts(use) for use in found]})


@router.get("/limits/{name}")
async def limit(shared: Shared, name: Annotated[str, PathPart(max_length=210)]) -> Json:
    async with shared.reader.transaction() as tx:
        found = await documents.limit(tx, name, hides_details=shared.settings.hides_details)
    return Json(found)


@router.get("/schedules")
async def schedules(shared: Shared) -> Json:
    async with shared.reader.transaction() as tx:
        found = await schedule_documents.every_schedule(tx)
    return Json(found)


@router.get("/schedules/{name}")
async def schedule(
    shared: Shared, name: Annotated[str, PathPart(max_length=200, pattern="^[^\\x00]*$")]
) -> Json:
    async with shared.reader.transaction() as tx:
        found = await schedule_documents.schedule(tx, name)
    return Json(found)


@router.get("/rejections")
async def refused(
    shared: Shared,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> Json:
    async with shared.reader.transaction() as tx:
        page = await tx.read(rejections.page(limit=limit, before=before))
    return Json(page)


@router.get("/audit")
async def audit(
    shared: Shared,
    actor: Name = None,
    action: Name = None,
    object: Name = None,  # noqa: A002 - the name in the query
    result: Name = None,
    address: Name = None,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> Json:
    """Actions of operators, and refused keys."""
    wanted = AuditFilter(actor, action, object, result, address)
    async with shared.reader.transaction() as tx:
        page = await tx.read(audit_page(wanted, limit=limit, before=before))
    return Json(page.without_roles() if shared.settings.hides_details else page)


@router.get("/jobs")
async def jobs(
    shared: Shared,
    state: JobState | None = None,
    queue: Name = None,
    task: Name = None,
    tag: Name = None,
    key: Name = None,
    limit: Limit = 100,
    after: Cursor = None,
) -> Json:
    """`key` selects the job with that idempotency key; other filters are ignored."""
    wanted = JobFilter(state, queue, task, tag=tag)
    if key is not None:
        async with shared.reader.transaction() as tx:
            found = await tx.read(job_statements.job_by_key(key))
        results = [] if found is None else [found]
        return Json(SearchPage(results, next=None, searched=1, searched_until=None))
    slow = shared.searching if job_pages.is_search(wanted) else contextlib.nullcontext()
    async with slow, shared.reader.transaction() as tx:
        page = await documents.search(tx, wanted, limit=limit, after=after)
    return Json(page)


@router.get("/jobs/{job_id}")
async def job(shared: Shared, job_id: UUID) -> Json:
    async with shared.reader.transaction() as tx:
        found = await documents.job(tx, job_id, hides_details=shared.settings.hides_details)
    return Json(found)


@router.get("/jobs/{job_id}/timeline")
async def timeline(shared: Shared, job_id: UUID) -> Json:
    async with shared.reader.transaction() as tx:
        found = await documents.job_timeline(tx, job_id)
    return Json(found)


@router.get("/reports")
async def reports(shared: Shared) -> Json:
    return Json({"reports": await asyncio.to_thread(read_reports, shared.settings.reports)})


def read_reports(folder: Path) -> list[dict[str, Any]]:
    """Summaries of drills and benchmarks, without incomplete or too large files."""
    paths = (folder / f"{name}.json" for name in REPORT_NAMES)
    return [report for path in paths if (report := _read_report(path)) is not None]


def _read_report(path: Path) -> dict[str, Any] | None:
    try:
        status = path.stat()
        if status.st_size > LARGEST_REPORT_BYTES:
            return None
        summary = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    written_at = datetime.fromtimestamp(status.st_mtime, UTC)
    return {"name": path.stem, "written_at": written_at, "summary": summary}
