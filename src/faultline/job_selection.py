"""A lazy selection of jobs by filter, to read them or to act on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict, Unpack
from uuid import UUID

import orjson

from faultline.errors import InvalidInput
from faultline.job_edits import CheckedTask, edit_checks, encode_changes
from faultline.model import JobRecord, JobState
from faultline.payload import check_queue_name, check_tag, check_task_name, encode_json
from faultline.statements import jobs
from faultline.statements.job_filter import JobFilter
from faultline.statements.many_jobs import (
    COUNT_PAGE,
    PAGE_SIZE,
    ActionReport,
    JobSweep,
    ManyAction,
)
from faultline.wording import with_article

if TYPE_CHECKING:
    from faultline.app import Faultline
    from faultline.task import Task

READ_PAGE = 100  # jobs that are read at once: each may have a payload of a megabyte
MAX_IDS = 10_000


class FilterArguments(TypedDict, total=False):
    """The filters of `app.jobs`; None allows any value."""

    state: JobState | Literal["queued", "running", "succeeded", "failed"] | None
    queue: str | None
    task: str | Task[Any, Any] | None
    tag: str | None  # one of the job's tags
    failed_reason: str | None
    error: str | type[BaseException] | None  # the class of the last error, or its name
    created_after: datetime | None  # the moment included
    created_before: datetime | None  # the moment excluded
    finished_after: datetime | None
    finished_before: datetime | None
    ids: Iterable[UUID | str] | None


class JobSelection:
    """The jobs that match a filter whenever a method runs; made by `app.jobs(...)`.

    Every method works in pages, each a short transaction that waits for no lock, so it may run beside
    workers. It is not one transaction: jobs that change their state meanwhile may be seen in either.
    """

    def __init__(self, app: Faultline, wanted: JobFilter) -> None:
        self._app = app
        self.filter = wanted

    def __repr__(self) -> str:
        return f"<JobSelection {self.filter.json}>"

    # ── read ─────────────────────────────────────────────────────────────────────────────────────

    def count(self) -> int:
        """How many jobs match now."""
        sweep, found = JobSweep(self.filter, page_size=COUNT_PAGE), 0
        while not sweep.is_finished:
            page = self._app.execute(sweep.page)
            found += len(page.ids)
            sweep.advance(page)
        return found

    async def count_async(self) -> int:
        sweep, found = JobSweep(self.filter, page_size=COUNT_PAGE), 0
        while not sweep.is_finished:
            page = await self._app.execute_async(sweep.page)
            found += len(page.ids)
            sweep.advance(page)
        return found

    def __iter__(self) -> Iterator[JobRecord]:
        sweep = JobSweep(self.filter, page_size=READ_PAGE)
        while not sweep.is_finished:
            page = self._app.execute(sweep.page)
            yield from self._app.execute(jobs.records_of(page.ids)) if page.ids else ()
            sweep.advance(page)

    async def __aiter__(self) -> AsyncIterator[JobRecord]:
        sweep = JobSweep(self.filter, page_size=READ_PAGE)
        while not sweep.is_finished:
            page = await self._app.execute_async(sweep.page)
            if page.ids:
                for record in await self._app.execute_async(jobs.records_of(page.ids)):
                    yield record
            sweep.advance(page)

    def export(self, file: str | Path | IO[bytes]) -> int:
        """Write each job as a line of JSON; returns how many.

        Numbers in payloads and results are written exactly as they are stored.
        """
        sweep, written = JobSweep(self.filter, page_size=READ_PAGE), 0
        with _opened(file) as out:
            while not sweep.is_finished:
                page = self._app.execute(sweep.page)
                if page.ids:
                    written += write_lines(out, self._app.execute(jobs.documents_of(page.ids)))
                sweep.advance(page)
        return written

    async def export_async(self, file: str | Path | IO[bytes]) -> int:
        sweep, written = JobSweep(self.filter, page_size=READ_PAGE), 0
        with _opened(file) as out:
            while not sweep.is_finished:
                page = await self._app.execute_async(sweep.page)
                if page.ids:
                    found = await self._app.execute_async(jobs.documents_of(page.ids))
                    written += write_lines(out, found)
                sweep.advance(page)
        return written

    # ── act ──────────────────────────────────────────────────────────────────────────────────────

    def retry(self, *, dry_run: bool = False) -> ActionReport:
        """Queue the failed jobs again, each with all its attempts.

        With `dry_run` this and the other actions change nothing, and report how many jobs match.
        """
        return self._act(ManyAction.RETRY, dry_run=dry_run)

    async def retry_async(self, *, dry_run: bool = False) -> ActionReport:
        return await self._act_async(ManyAction.RETRY, dry_run=dry_run)

    def cancel(self, reason: str | None = None, *, dry_run: bool = False) -> ActionReport:
        """Cancel the queued and running jobs, so that they do not run (again)."""
        return self._act(ManyAction.CANCEL, reason, dry_run=dry_run)

    async def cancel_async(
        self, reason: str | None = None, *, dry_run: bool = False
    ) -> ActionReport:
        return await self._act_async(ManyAction.CANCEL, reason, dry_run=dry_run)

    def delete(self, *, dry_run: bool = False) -> ActionReport:
        """Delete the queued and failed jobs; their idempotency keys can be used again."""
        return self._act(ManyAction.DELETE, dry_run=dry_run)

    async def delete_async(self, *, dry_run: bool = False) -> ActionReport:
        return await self._act_async(ManyAction.DELETE, dry_run=dry_run)

    def edit(
        self,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        dry_run: bool = False,
        force: bool = False,
        **fields: Any,
    ) -> ActionReport:
        """Set fields of the payloads of the queued and failed jobs.

        A value is JSON, and replaces the former one as a whole; the other fields stay. `changes` is for
        fields whose names are not Python's. Timelines keep the former payloads. The new ones are checked
        first, also with `dry_run`: if one would not fit its task of this application, none is changed,
        unless `force`.
        """
        text = encode_changes(changes or {}, fields)
        tasks = {} if force else self._app.tasks
        if tasks or dry_run:
            checked = self._act(ManyAction.EDIT, changes=text, tasks=tasks, dry_run=True)
            if dry_run:
                return checked
        return self._act(ManyAction.EDIT, changes=text, tasks=tasks, dry_run=False)

    async def edit_async(
        self,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        dry_run: bool = False,
        force: bool = False,
        **fields: Any,
    ) -> ActionReport:
        text = encode_changes(changes or {}, fields)
        tasks = {} if force else self._app.tasks
        if tasks or dry_run:
            checked = await self._act_async(
                ManyAction.EDIT, changes=text, tasks=tasks, dry_run=True
            )
            if dry_run:
                return checked
        return await self._act_async(ManyAction.EDIT, changes=text, tasks=tasks, dry_run=False)

    def _act(
        self,
        action: ManyAction,
        reason: str | None = None,
        *,
        changes: str = "{}",
        tasks: Mapping[str, CheckedTask] | None = None,
        dry_run: bool,
    ) -> ActionReport:
        sweep, matched = self._sweep(action, reason, changes, dry_run), 0
        while not sweep.is_finished:
            page = self._app.execute(sweep.page)
            matched += len(page.ids)
            for statement in edit_checks(tasks or {}, page.ids, changes):
                self._app.execute(statement)
            if page.ids and not dry_run:
                sweep.add(self._app.operate(action, "jobs", sweep.act(page.ids)))
            sweep.advance(page)
        return replace(sweep.report, matched=matched)

    async def _act_async(
        self,
        action: ManyAction,
        reason: str | None = None,
        *,
        changes: str = "{}",
        tasks: Mapping[str, CheckedTask] | None = None,
        dry_run: bool,
    ) -> ActionReport:
        sweep, matched = self._sweep(action, reason, changes, dry_run), 0
        while not sweep.is_finished:
            page = await self._app.execute_async(sweep.page)
            matched += len(page.ids)
            for statement in edit_checks(tasks or {}, page.ids, changes):
                await self._app.execute_async(statement)
            if page.ids and not dry_run:
                sweep.add(await self._app.operate_async(action, "jobs", sweep.act(page.ids)))
            sweep.advance(page)
        return replace(sweep.report, matched=matched)

    def _sweep(
        self, action: ManyAction, reason: str | None, changes: str, dry_run: bool
    ) -> JobSweep:
        page_size = COUNT_PAGE if dry_run else PAGE_SIZE
        return JobSweep(self.filter, action, reason=reason, changes=changes, page_size=page_size)


@contextmanager
def _opened(file: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    if isinstance(file, str | Path):
        with Path(file).open("wb") as out:
            yield out
    else:
        yield file


def write_lines(out: IO[bytes], documents: list[dict[str, Any]]) -> int:
    out.write(b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in documents))
    return len(documents)


def job_filter(**given: Unpack[FilterArguments]) -> JobFilter:
    """A checked filter; raises InvalidInput."""
    known = FilterArguments.__optional_keys__
    if unknown := sorted(set(given) - known):
        raise InvalidInput(
            f"a filter has no {unknown[0]!r}", hint=f"it has {', '.join(sorted(known))}"
        )
    task, error, ids = given.get("task"), given.get("error"), given.get("ids")
    state, queue, tag = given.get("state"), given.get("queue"), given.get("tag")
    return JobFilter(
        state=None if state is None else _state(state),
        queue=None if queue is None else check_queue_name(queue),
        task=None
        if task is None
        else check_task_name(task if isinstance(task, str) else task.name),
        tag=None if tag is None else check_tag(tag),
        failed_reason=_text("failed_reason", given.get("failed_reason")),
        error=_text("error", error.__name__ if isinstance(error, type) else error),
        created_after=_moment("created_after", given.get("created_after")),
        created_before=_moment("created_before", given.get("created_before")),
        finished_after=_moment("finished_after", given.get("finished_after")),
        finished_before=_moment("finished_before", given.get("finished_before")),
        ids=None if ids is None else _ids(ids),
    )


def _moment(name: str, moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidInput(
            f"{name} must be a datetime with a time zone",
            hint="datetime(2030, 1, 31, 9, tzinfo=UTC)",
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{name} is not between the years 1 and 9999") from None


def _state(state: JobState | str) -> JobState:
    try:
        return JobState(state)
    except ValueError:
        known = ", ".join(JobState)
        raise InvalidInput(f"{str(state)[:80]!r} is not a state", hint=f"give {known}") from None


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name} must be a string, not {with_article(type(value).__name__)}")
    encode_json(value, what=name)  # refuses what PostgreSQL cannot store
    return value


def _ids(ids: Iterable[UUID | str]) -> tuple[UUID, ...]:
    if isinstance(ids, str):
        raise InvalidInput("ids must be a list of job ids", hint="ids=[job_id]")
    try:
        found = tuple(each if isinstance(each, UUID) else UUID(each) for each in ids)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(f"ids must be job ids: {error}") from None
    if len(found) > MAX_IDS:
        raise InvalidInput(
            f"{len(found):,} ids; the limit is {MAX_IDS:,}", hint="send them in parts"
        )
    return found
