"""The commands `jobs list`, `show` and `export`, and the group of `jobs`."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

import click
import orjson

from faultline import timeline
from faultline.cli.context import Context, session
from faultline.cli.job_actions import cancel, delete, retry
from faultline.cli.job_edit import edit
from faultline.cli.job_filter_options import FilterOptions, filter_options
from faultline.cli.output import count, duration, json_option, one_line, print_json, print_table
from faultline.errors import UnknownJob
from faultline.job_selection import READ_PAGE, write_lines
from faultline.model import JobRecord, JobState, ReportedProgress
from faultline.postgres.sessions import Connection, run, run_reads
from faultline.statements import clock, job_pages
from faultline.statements import jobs as statements
from faultline.statements.job_filter import JobFilter
from faultline.statements.jobs import JobText
from faultline.statements.many_jobs import JobSweep
from faultline.timeline import TimelineEvent
from faultline.wording import first_line, plain


@click.group()
def jobs() -> None:
    """List, show, retry, cancel, delete, edit and export jobs."""


jobs.add_command(retry)
jobs.add_command(cancel)
jobs.add_command(delete)
jobs.add_command(edit)


@jobs.command("list")
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="How many jobs to list.",
)
@click.option("--after", metavar="CURSOR", help="List the page after the one that printed this.")
@json_option
@click.pass_obj
def list_jobs(
    context: Context, options: FilterOptions, limit: int, after: str | None, as_json: bool
) -> None:
    """List jobs, newest first.

    With --state queued they come in the order in which workers claim them, with running by the end of
    their leases, with failed the last failed first.
    """
    with session(context) as conn:
        found, following = _page(conn, options.resolve(conn), limit, after)
        now = run(conn, clock.database_time())
        texts = run(conn, statements.texts_of([job.id for job in found])) if as_json else {}
        question = None if found or as_json else options.suggestion(context, conn)
    if as_json:
        print_json([_with_stored_text(job, texts.get(job.id)) for job in found])
    elif not found:
        click.echo(f"no such jobs{f'; {question}' if question else ''}")
    else:
        print_table(
            ["id", "task", "queue", "pri", "state", "attempts", "age", ""],
            [
                [
                    *(str(job.id), job.task, job.queue, str(job.priority), job.state.value),
                    *(f"{job.attempts}/{job.max_attempts}", _ago(now, job.created_at)),
                    one_line(_note(job, now), 60),
                ]
                for job in found
            ],
        )
    if following is not None:
        click.echo(f"more jobs: add --after {following}", err=as_json)


def _page(
    conn: Connection, wanted: JobFilter, limit: int, after: str | None
) -> tuple[list[JobRecord], str | None]:
    """Jobs, and the next page's cursor; each statement examines a bounded number."""
    ids: list[UUID] = []
    while True:
        page = run(conn, job_pages.id_page(wanted, limit=limit - len(ids), after=after))
        ids += page.ids
        after = page.next
        if after is None or len(ids) == limit:
            return run(conn, statements.records_of(ids)), after


def _note(job: JobRecord, now: datetime) -> str:
    match job.state:
        case JobState.QUEUED if job.waits_for is not None:
            return f"waits {_ago(now, job.next_run_at)} for limit {job.waits_for}"
        case JobState.QUEUED if job.next_run_at > now:
            return f"due in {_ago(job.next_run_at, now)}"
        case JobState.RUNNING if job.progress is not None:
            return f"{progress_text(job.progress)}, on {job.lease_owner}"
        case JobState.RUNNING:
            return f"on {job.lease_owner}"
        case JobState.FAILED:
            error = first_line(job.last_error)
            return f"{job.failed_reason}: {error}" if error else f"{job.failed_reason}"
    return ""


def progress_text(progress: ReportedProgress) -> str:
    """40 %, and the handler's message."""
    message = f": {one_line(progress.message)}" if progress.message else ""
    return f"{math.floor(progress.fraction * 100)} %{message}"


def _ago(now: datetime, then: datetime) -> str:
    return duration(max(0.0, (now - then).total_seconds()))


@jobs.command()
@click.argument("job", type=click.UUID)
@json_option
@click.pass_obj
def show(context: Context, job: UUID, as_json: bool) -> None:
    """Show a job and its timeline."""
    with session(context) as conn:
        record = run(conn, statements.get_job(job))
        if record is None:
            raise UnknownJob(f"there is no job {job}", hint="faultline jobs list")
        text = run(conn, statements.texts_of([job])).get(job)
        events = _events(conn, job)
    if as_json:
        print_json({**_with_stored_text(record, text), "timeline": events})
        return
    shown = asdict(record)
    if record.progress is not None:
        shown["progress"] = progress_text(record.progress)
    shown["tags"] = ", ".join(record.tags) or None
    if text is not None:
        shown |= {"payload": text.payload, "result": text.result}
    for name, value in shown.items():
        if value is not None:
            click.echo(f"{name:17}{plain(value)}")
    click.echo()
    print_table(
        ["time", "event", "token", "worker", ""],
        [_timeline_row(event, record.created_at) for event in events],
    )


def _with_stored_text(job: JobRecord, text: JobText | None) -> dict[str, Any]:
    """The job with stored payload and result; `text` is None if it was purged."""
    shown = asdict(job)
    if text is not None:
        shown["payload"] = orjson.Fragment(text.payload)
        shown["result"] = None if text.result is None else orjson.Fragment(text.result)
    return shown


def _events(conn: Connection, job_id: UUID) -> list[TimelineEvent]:
    history = run_reads(conn, timeline.history_of(job_id))
    if history is None:  # purged since its row was read
        return []
    return timeline.events(history) + timeline.upcoming(history.job)


def _timeline_row(event: TimelineEvent, created_at: datetime) -> list[Any]:
    offset = f"+{_ago(event.at, created_at)}"
    return [offset, event.kind, str(event.token or ""), event.worker or "", one_line(event.text)]


@jobs.command()
@click.argument("job", type=click.UUID, nargs=-1)
@filter_options
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    metavar="FILE",
    help="Where to write; - is stdout, the default.",
)
@click.option(
    "--json", is_flag=True, expose_value=False, help="Accepted, and without effect: it is JSON."
)
@click.pass_obj
def export(context: Context, job: tuple[UUID, ...], options: FilterOptions, output: str) -> None:
    """Write jobs as lines of JSON, with payload and result.

    Without ids and filter it writes all jobs. Numbers are written exactly as they are stored.
    """
    written = 0
    with session(context) as conn, click.open_file(output, "wb") as out:
        sweep = JobSweep(options.resolve(conn, job), page_size=READ_PAGE)
        while not sweep.is_finished:
            page = run(conn, sweep.page)
            if page.ids:
                written += write_lines(out, run(conn, statements.documents_of(page.ids)))
            sweep.advance(page)
    if output != "-":
        click.echo(f"{count(written, 'job')} written", err=True)
