"""The commands `jobs retry`, `cancel` and `delete`, by ids or by filter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar
from uuid import UUID

import click

from faultline.cli.context import Context, audited, session
from faultline.cli.job_filter_options import FilterOptions, filter_options
from faultline.cli.output import count, json_option, one_line, print_json, print_table
from faultline.errors import FaultlineError, InvalidInput
from faultline.model import JobState
from faultline.postgres.errors import driver_errors
from faultline.postgres.sessions import Connection, run
from faultline.statements import jobs as statements
from faultline.statements import protocol
from faultline.statements.job_filter import JobFilter
from faultline.statements.many_jobs import COUNT_PAGE, ActionReport, JobSweep, ManyAction
from faultline.statements.statement import Statement
from faultline.wording import first_line, plain

F = TypeVar("F", bound=Callable[..., Any])

_SAMPLE = 10
_DONE = {
    ManyAction.RETRY: "queued again",
    ManyAction.CANCEL: "cancelled",
    ManyAction.DELETE: "deleted",
}


@dataclass(frozen=True, slots=True)
class _How:
    dry_run: bool
    yes: bool
    as_json: bool


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
    how = _How(dry_run, yes, as_json)
    if _is_one_by_one(job, options, how):
        words = {
            JobState.QUEUED: "is queued",
            JobState.RUNNING: "is running; there is nothing to retry",
        }
        _for_each(context, job, "retry", protocol.retry, words, as_json)
    else:
        _sweep(context, ManyAction.RETRY, job, options, how)


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
    how = _How(dry_run, yes, as_json)
    if _is_one_by_one(job, options, how):
        words = {
            JobState.FAILED: "will not run (again)",
            JobState.SUCCEEDED: "had succeeded before; nothing was cancelled",
        }
        _for_each(
            context, job, "cancel", lambda job_id: protocol.cancel(job_id, reason), words, as_json
        )
    else:
        _sweep(context, ManyAction.CANCEL, job, options, how, reason)


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
    how = _How(dry_run, yes, as_json)
    if _is_one_by_one(job, options, how):
        words = dict.fromkeys(JobState, "is deleted")
        _for_each(context, job, "delete", protocol.delete, words, as_json)
    else:
        _sweep(context, ManyAction.DELETE, job, options, how)


# ── the given jobs ───────────────────────────────────────────────────────────────────────────────


def _is_one_by_one(job: tuple[UUID, ...], options: FilterOptions, how: _How) -> bool:
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


# ── all jobs of a filter ─────────────────────────────────────────────────────────────────────────


def _sweep(
    context: Context,
    action: ManyAction,
    job_ids: tuple[UUID, ...],
    options: FilterOptions,
    how: _How,
    reason: str | None = None,
) -> None:
    """Count, ask, then change the jobs page by page, each page in a short transaction."""
    with session(context) as conn:
        wanted = options.resolve(conn, job_ids)
        matched, sample = _count(conn, wanted, action)
        question = None if matched or how.as_json else options.suggestion(context, conn)
        if how.dry_run:
            _print_dry_run(conn, action, matched, sample, how, question)
            return
        if matched:
            _confirm(action, matched, how)
        report = _run(conn, JobSweep(wanted, action, reason=reason), action, matched, how)
    _print_report(action, matched, report, how, question)
    if report.locked or report.refused:
        sys.exit(1)


def _count(conn: Connection, wanted: JobFilter, action: ManyAction) -> tuple[int, list[UUID]]:
    sweep, matched = JobSweep(wanted, action, page_size=COUNT_PAGE), 0
    sample: list[UUID] = []
    while not sweep.is_finished:
        page = run(conn, sweep.page)
        matched += len(page.ids)
        sample += page.ids[: _SAMPLE - len(sample)]
        sweep.advance(page)
    return matched, sample


def _confirm(action: ManyAction, matched: int, how: _How) -> None:
    if how.yes:
        return
    if not _is_terminal():
        raise InvalidInput(
            f"this would {action} {count(matched, 'job')}; nothing was changed",
            hint="look at them with --dry-run, and confirm with --yes",
        )
    click.confirm(f"{str(action).capitalize()} {count(matched, 'job')}?", abort=True, err=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _run(
    conn: Connection, sweep: JobSweep, action: ManyAction, matched: int, how: _How
) -> ActionReport:
    is_shown = matched > 0 and sys.stderr.isatty() and not how.as_json
    with click.progressbar(length=matched, file=sys.stderr, hidden=not is_shown) as bar:
        while not sweep.is_finished:
            page = run(conn, sweep.page)
            if page.ids:
                with audited(conn, action, "jobs"):
                    outcomes = run(conn, sweep.act(page.ids))
                sweep.add(outcomes)
                bar.update(len(page.ids))
            sweep.advance(page)
    return sweep.report


def _print_dry_run(
    conn: Connection,
    action: ManyAction,
    matched: int,
    sample: list[UUID],
    how: _How,
    question: str | None,
) -> None:
    found = run(conn, statements.documents_of(sample))
    if how.as_json:
        print_json({"action": action, "dry_run": True, "matched": matched, "sample": found})
        return
    because = f"; {question}" if question else "; nothing was changed"
    click.echo(f"would {action} {count(matched, 'job')}{because}")
    if found:
        print_table(
            ["id", "task", "queue", "state", ""],
            [
                [
                    *(str(job["id"]), job["task"], job["queue"], job["state"]),
                    one_line(first_line(job["last_error"]), 60),
                ]
                for job in found
            ],
        )
    if matched > len(found):
        click.echo(f"and {matched - len(found):,} more")


def _print_report(
    action: ManyAction, matched: int, report: ActionReport, how: _How, question: str | None
) -> None:
    if how.as_json:
        told = {"action": action, "dry_run": False, "matched": matched}
        print_json({**told, **asdict(report), "matched": matched})
        return
    if not matched and not report.done:
        click.echo(f"no such jobs{f'; {question}' if question else ''}")
        return
    click.echo(f"{count(report.done, 'job')} {_DONE[action]}")
    for number, why, ids in (
        (report.unchanged, "unchanged: there was nothing to do", ()),
        (report.gone, "deleted or changed by others meanwhile", ()),
        (report.refused, "refused because of the state", report.refused_ids),
        (report.locked, "skipped because another session holds the row", report.locked_ids),
    ):
        if number:
            click.echo(f"{count(number, 'job')} {why}")
            for job_id in ids[:_SAMPLE]:
                click.echo(f"  {job_id}")
    if report.locked:
        click.echo("run the command again for the skipped jobs")
