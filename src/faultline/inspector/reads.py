"""The endpoints that read. Each is one look at the database, or shares one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from faultline.inspector import documents, job_details, job_pages, rejections, reports
from faultline.inspector.answers import Json
from faultline.inspector.job_pages import JobFilter
from faultline.inspector.search import Search, search
from faultline.inspector.services import Shared
from faultline.model import JobState
from faultline.statements.audit import AuditFilter
from faultline.statements.audit import page as audit_page

LARGEST_PAGE = 1_000

Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE)]
Cursor = Annotated[str | None, Query(max_length=500)]
Name = Annotated[str | None, Query(min_length=1, max_length=255, pattern="^[^\\x00]*$")]

router = APIRouter(prefix="/api")


@router.get("/about")
async def about(shared: Shared) -> Json:
    """What this inspector is and can do; asks the database nothing."""
    return Json(
        {
            "version": shared.settings.version,
            "actions": shared.settings.api_url is not None,
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
    async with shared.reader.look() as look:
        page = await documents.lease_page(look, limit=limit, after=after)
    return Json(page)


@router.get("/workers")
async def workers(shared: Shared) -> Json:
    return Json({"workers": (await shared.snapshots.latest()).survey.workers})


@router.get("/queues")
async def queues(shared: Shared) -> Json:
    async with shared.reader.look() as look:
        found = await documents.queue_counts(look)
    return Json(found)


@router.get("/rejections")
async def refused(
    shared: Shared,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> Json:
    async with shared.reader.look() as look:
        page = await look.read(rejections.page(limit=limit, before=before))
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
    """What operators did, and which keys were refused."""
    wanted = AuditFilter(actor, action, object, result, address)
    async with shared.reader.look() as look:
        page = await look.read(audit_page(wanted, limit=limit, before=before))
    return Json(page.without_roles() if shared.settings.is_discreet else page)


@router.get("/jobs")
async def jobs(
    shared: Shared,
    state: JobState | None = None,
    queue: Name = None,
    task: Name = None,
    key: Name = None,
    limit: Limit = 100,
    after: Cursor = None,
) -> Json:
    """With `key` the one job that was enqueued with that idempotency key, whatever else is asked for."""
    wanted = JobFilter(state, queue, task)
    if key is not None:
        async with shared.reader.look() as look:
            found = await look.read(job_details.of_key(key))
        told = [] if found is None else [found]
        return Json(Search(told, next=None, searched=1, searched_until=None))
    slow = shared.searching if job_pages.is_looked_for(wanted) else contextlib.nullcontext()
    async with slow, shared.reader.look() as look:
        page = await search(look, wanted, limit=limit, after=after)
    return Json(page)


@router.get("/jobs/{job_id}")
async def job(shared: Shared, job_id: UUID) -> Json:
    async with shared.reader.look() as look:
        found = await documents.job(look, job_id, is_discreet=shared.settings.is_discreet)
    return Json(found)


@router.get("/jobs/{job_id}/timeline")
async def timeline(shared: Shared, job_id: UUID) -> Json:
    async with shared.reader.look() as look:
        told = await documents.job_timeline(look, job_id)
    return Json(told)


@router.get("/reports")
async def found_reports(shared: Shared) -> Json:
    found = await asyncio.to_thread(reports.found_in, shared.settings.reports)
    return Json({"reports": found})
