"""The commands `jobs list`, `show`, `retry` and `cancel`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

import click
import orjson

from faultline import timeline
from faultline.cli.context import Context, audited, session
from faultline.cli.output import duration, json_option, one_line, print_json, print_table
from faultline.errors import FaultlineError, UnknownJob
from faultline.model import JobRecord, JobState
from faultline.postgres.errors import driver_errors
from faultline.postgres.sessions import Connection, run, run_reads
from faultline.statements import clock, protocol
from faultline.statements import jobs as statements
from faultline.statements.jobs import JobText
from faultline.statements.statement import Statement
from faultline.timeline import TimelineEvent
from faultline.wording import plain


@click.group()
def jobs() -> None:
    """List, show, retry and cancel jobs."""


@jobs.command("list")
@click.option(
    "--state",
    type=click.Choice([state.value for state in JobState]),
    help="List only jobs in this state.",
)
@click.option("--queue", help="List only jobs of this queue.")
@click.option("--task", help="List only jobs of this task.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="How many jobs to list.",
)
@click.option(
    "--before",
    type=click.UUID,
    metavar="JOB",
    help="List the page after the one that ended with this id.",
)
@json_option
@click.pass_obj
def list_jobs(
    context: Context,
    state: str | None,
    queue: str | None,
    task: str | None,
    limit: int,
    before: UUID | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    wanted = statements.list_jobs(state=state, queue=queue, task=task, before=before, limit=limit)
    with session(context) as conn:
        found, now = run(conn, wanted), run(conn, clock.database_time())
        texts = run(conn, statements.texts_of([job.id for job in found])) if as_json else {}
    if as_json:
        print_json([_with_stored_text(job, texts.get(job.id)) for job in found])
        return
    if not found:
        click.echo("no such jobs")
        return
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
    if len(found) == limit:
        click.echo(f"older jobs: faultline jobs list --before {found[-1].id}")


def _note(job: JobRecord, now: datetime) -> str:
    match job.state:
        case JobState.QUEUED if job.next_run_at > now:
            return f"due in {_ago(job.next_run_at, now)}"
        case JobState.RUNNING:
            return f"on {job.lease_owner}"
        case JobState.FAILED:
            return (
                f"{job.failed_reason}: {job.last_error}"
                if job.last_error
                else f"{job.failed_reason}"
            )
    return ""


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
@click.argument("job", type=click.UUID, nargs=-1, required=True)
@json_option
@click.pass_obj
def retry(context: Context, job: tuple[UUID, ...], as_json: bool) -> None:
    """Queue failed jobs again, with all their attempts.

    A job that has succeeded is refused.
    """
    words = {
        JobState.QUEUED: "is queued",
        JobState.RUNNING: "is running; there is nothing to retry",
    }
    _for_each(context, job, "retry", protocol.retry, words, as_json)


@jobs.command()
@click.argument("job", type=click.UUID, nargs=-1, required=True)
@click.option("--reason", help="Stored with the job.")
@json_option
@click.pass_obj
def cancel(context: Context, job: tuple[UUID, ...], reason: str | None, as_json: bool) -> None:
    """Cancel jobs, so that they do not run (again).

    A job that has succeeded stays succeeded.
    """
    words = {
        JobState.FAILED: "will not run (again)",
        JobState.SUCCEEDED: "had succeeded before; nothing was cancelled",
    }
    _for_each(
        context, job, "cancel", lambda job_id: protocol.cancel(job_id, reason), words, as_json
    )


def _for_each(
    context: Context,
    job_ids: tuple[UUID, ...],
    action: str,
    verb: Callable[[UUID], Statement[JobState]],
    words: Mapping[JobState, str],
    as_json: bool,
) -> None:
    """Run `verb` on each job by itself; exit code 1 if it was refused for any of them."""
    answers: list[dict[str, Any]] = []
    with session(context) as conn:
        for job_id in job_ids:
            state, error, says = None, None, ""
            try:
                with driver_errors(), audited(conn, action, f"job {job_id}"):
                    state = run(conn, verb(job_id))
                says = words.get(state, f"is {state}")
            except FaultlineError as refusal:
                error = refusal.code
                says = f"[{refusal.code}] {refusal}"
            answers.append({"job_id": job_id, "state": state, "error": error, "says": says})
            if not as_json:
                click.echo(f"{job_id}  {plain(says)}")
    if as_json:
        print_json(answers)
    if any(answer["error"] for answer in answers):
        sys.exit(1)
