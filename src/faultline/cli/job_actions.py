"""The commands `jobs retry`, `cancel` and `delete`, by ids or by filter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import click

from faultline.cli.context import Context, audited, session
from faultline.cli.job_filter_options import FilterOptions, filter_options
from faultline.cli.job_sweep import How, SweepAction, sweep_jobs
from faultline.cli.output import json_option, print_json
from faultline.errors import FaultlineError
from faultline.model import JobState
from faultline.postgres.errors import driver_errors
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.many_jobs import ManyAction
from faultline.statements.statement import Statement
from faultline.wording import plain

F = TypeVar("F", bound=Callable[..., Any])


def _action_options(command: F) -> F:
    for option in reversed(
        (
            click.argument("job", type=click.UUID, nargs=-1),
            filter_options,
            click.option(
                "--dry-run", is_flag=True, help="Print how many jobs, and some; change nothing."
            ),
            click.option("-y", "--yes", is_flag=True, help="Do not ask for a confirmation."),
            json_option,
            click.pass_obj,
        )
    ):
        command = option(command)
    return command


@click.command()
@_action_options
def retry(
    context: Context,
    job: tuple[UUID, ...],
    options: FilterOptions,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Queue failed jobs again, with all their attempts.

    Give the jobs' ids, or a filter. A job that has succeeded is refused.
    """
    how = How(dry_run, yes, as_json)
    if _is_one_by_one(job, options, how):
        words = {
            JobState.QUEUED: "is queued",
            JobState.RUNNING: "is running; there is nothing to retry",
        }
        _for_each(context, job, "retry", protocol.retry, words, as_json)
    else:
        sweep_jobs(context, SweepAction(ManyAction.RETRY), job, options, how)


@click.command()
@click.option("--reason", help="Stored with the job.")
@_action_options
def cancel(
    context: Context,
    job: tuple[UUID, ...],
    options: FilterOptions,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel jobs, so that they do not run (again).

    Give the jobs' ids, or a filter. A job that has succeeded stays succeeded.
    """
    how = How(dry_run, yes, as_json)
    if _is_one_by_one(job, options, how):
        words = {
            JobState.FAILED: "will not run (again)",
            JobState.SUCCEEDED: "had succeeded before; nothing was cancelled",
        }
        _for_each(
            context, job, "cancel", lambda job_id: protocol.cancel(job_id, reason), words, as_json
        )
    else:
        sweep_jobs(context, SweepAction(ManyAction.CANCEL, reason=reason), job, options, how)


@click.command()
@_action_options
def delete(
    context: Context,
    job: tuple[UUID, ...],
    options: FilterOptions,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete queued and failed jobs, and free their idempotency keys.

    Give the jobs' ids, or a filter. A running job is refused: cancel it first. A succeeded job is
    refused: retention removes it (see faultline purge).
    """
    how = How(dry_run, yes, as_json)
    if _is_one_by_one(job, options, how):
        words = dict.fromkeys(JobState, "is deleted")
        _for_each(context, job, "delete", protocol.delete, words, as_json)
    else:
        sweep_jobs(context, SweepAction(ManyAction.DELETE), job, options, how)


# ── the given jobs ───────────────────────────────────────────────────────────────────────────────


def _is_one_by_one(job: tuple[UUID, ...], options: FilterOptions, how: How) -> bool:
    if not job and options.is_empty:
        raise click.UsageError("Give the ids of jobs, or a filter such as --queue or --task.")
    return options.is_empty and not how.dry_run


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
