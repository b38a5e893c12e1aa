"""The command `jobs edit`: a new payload for one job, or new fields for many."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click
import orjson

from faultline.cli.context import Context, audited, session, with_lock_timeout
from faultline.cli.enqueue import read_payload
from faultline.cli.job_filter_options import FilterOptions, filter_options
from faultline.cli.job_sweep import How, SweepAction, sweep_jobs
from faultline.cli.output import json_option, print_json
from faultline.errors import InvalidInput
from faultline.job_edits import CheckedTask, encode_changes
from faultline.model import JobState
from faultline.payload import encode_payload
from faultline.postgres.sessions import Connection, run
from faultline.statements import jobs as statements
from faultline.statements import protocol
from faultline.statements.many_jobs import ManyAction
from faultline.statements.statement import Statement
from faultline.suggestions import joined
from faultline.wording import plain


@click.command()
@click.argument("job", type=click.UUID, nargs=-1)
@filter_options
@click.option(
    "--set",
    "fields",
    metavar="JSON",
    help="The fields to set, a JSON object of arguments; other fields stay. - reads it from stdin.",
)
@click.option(
    "--payload",
    metavar="JSON",
    help="The whole new payload of one JOB, a JSON object; - reads it from stdin.",
)
@click.option(
    "--force", is_flag=True, help="Store it even if the arguments do not fit the task of --app."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check it, and print how many jobs, and payloads before and after; change nothing.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for a confirmation.")
@json_option
@click.pass_obj
def edit(
    context: Context,
    job: tuple[UUID, ...],
    options: FilterOptions,
    fields: str | None,
    payload: str | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Change the payloads of queued and failed jobs.

    With --set, give the jobs' ids, or a filter: the jobs get these fields, and keep their others. With
    --payload, one job gets a payload. The arguments are checked if --app has the job's task. The former
    payload stays in the job's timeline. A failed job does not run again by itself: retry it.
    """
    if (fields is None) is (payload is None):
        raise click.UsageError("Give either --set or --payload.")
    if payload is not None:
        if len(job) != 1 or not options.is_empty:
            raise click.UsageError("--payload is for one JOB; use --set for many.")
        _edit_one(context, job[0], read_payload(payload), force, dry_run, as_json)
        return
    if not job and options.is_empty:
        raise click.UsageError("Give the ids of jobs, or a filter such as --queue or --task.")
    changes = encode_changes(read_payload(str(fields)))
    tasks: dict[str, CheckedTask] = {}
    if context.app_path is not None and not force:
        context.app.import_tasks()
        tasks = dict(context.app.tasks)
    action = SweepAction(ManyAction.EDIT, changes=changes, tasks=tasks)
    sweep_jobs(context, action, job, options, How(dry_run, yes, as_json))


def _edit_one(
    context: Context, job: UUID, arguments: Any, force: bool, dry_run: bool, as_json: bool
) -> None:
    verb = protocol.edit_payload(job, arguments)
    with session(context) as conn:
        if not force:
            _check_arguments(context, conn, job, arguments)
        if dry_run:
            _print_edit(job, *_try_edit(conn, job, verb), as_json)
            return
        with audited(conn, "edit", f"job {job}"):
            state = run(conn, verb)
    if as_json:
        print_json({"job_id": job, "state": state})
    else:
        hint = f"; to run it: faultline jobs retry {job}" if state is JobState.FAILED else ""
        click.echo(f"{job}  has the new payload, and is {state}{hint}")


def _try_edit(conn: Connection, job: UUID, verb: Statement[JobState]) -> tuple[str, str]:
    """The payloads before and after an edit, which is made and rolled back."""
    with conn.transaction(force_rollback=True), with_lock_timeout(conn):
        before = run(conn, statements.texts_of([job]))
        run(conn, verb)
        after = run(conn, statements.texts_of([job]))
    return before[job].payload, after[job].payload


def _print_edit(job: UUID, former: str, new: str, as_json: bool) -> None:
    if as_json:
        documents = {"former": orjson.Fragment(former), "payload": orjson.Fragment(new)}
        print_json({"job_id": job, "dry_run": True, **documents})
    else:
        click.echo(f"{job}  would be edited; nothing was changed")
        click.echo(f"  from  {plain(former)}\n  to    {plain(new)}")


def _check_arguments(context: Context, conn: Connection, job: UUID, arguments: Any) -> None:
    """Refuse arguments that the job's task would refuse, if the application has it."""
    if context.app_path is None:
        return
    context.app.import_tasks()
    record = run(conn, statements.get_job(job))
    task = None if record is None else context.app.tasks.get(record.task)
    if task is not None:
        try:
            task.check_arguments(encode_payload(arguments))
        except InvalidInput as error:
            raise InvalidInput(
                error.message, hint=joined(error.hint, "--force stores it anyway")
            ) from None
