"""An action of the command line on all jobs of a filter: count, ask, act, report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID

import click
import orjson

from faultline.cli.context import Context, audited, session
from faultline.cli.job_filter_options import FilterOptions
from faultline.cli.output import count, one_line, print_json, print_table
from faultline.errors import InvalidInput
from faultline.job_edits import CheckedTask, edit_checks
from faultline.postgres.sessions import Connection, run
from faultline.statements import jobs as statements
from faultline.statements import many_jobs
from faultline.statements.job_filter import JobFilter
from faultline.statements.many_jobs import (
    COUNT_PAGE,
    PAGE_SIZE,
    ActionReport,
    JobEdit,
    JobSweep,
    ManyAction,
)
from faultline.suggestions import joined
from faultline.wording import first_line

_SAMPLE = 10
_SHOWN_PAYLOAD = 300  # characters of a payload in a sample
_DONE = {
    ManyAction.RETRY: "queued again",
    ManyAction.CANCEL: "cancelled",
    ManyAction.DELETE: "deleted",
    ManyAction.EDIT: "edited",
}


@dataclass(frozen=True, slots=True)
class SweepAction:
    """What to do with each job; an edit's payloads are checked against `tasks`."""

    verb: ManyAction
    reason: str | None = None  # of a cancellation
    changes: str = "{}"  # of an edit
    tasks: Mapping[str, CheckedTask] = field(default_factory=dict)

    def sweep(self, wanted: JobFilter, page_size: int) -> JobSweep:
        return JobSweep(
            wanted, self.verb, reason=self.reason, changes=self.changes, page_size=page_size
        )

    def check(self, conn: Connection, job_ids: Sequence[UUID]) -> None:
        try:
            for statement in edit_checks(self.tasks, job_ids, self.changes):
                run(conn, statement)
        except InvalidInput as error:
            raise InvalidInput(
                error.message, hint=joined(error.hint, "--force stores it anyway")
            ) from None


@dataclass(frozen=True, slots=True)
class How:
    dry_run: bool
    yes: bool
    as_json: bool


def sweep_jobs(
    context: Context,
    action: SweepAction,
    job_ids: tuple[UUID, ...],
    options: FilterOptions,
    how: How,
) -> None:
    """Count, ask, then change the jobs page by page, each page in a short transaction."""
    with session(context) as conn:
        wanted = options.resolve(conn, job_ids)
        matched, sample = _count(conn, wanted, action)
        question = None if matched or how.as_json else options.suggestion(context, conn)
        if how.dry_run:
            _print_dry_run(conn, action, matched, sample, how, question)
            return
        if matched and not options.is_empty:
            _confirm(action.verb, matched, how)
        report = _run(conn, wanted, action, matched, how)
    missing = len(set(job_ids)) - matched if options.is_empty else 0
    report = replace(report, gone=report.gone + missing)
    _print_report(action.verb, matched, report, how, question)
    if report.locked or report.refused or missing:
        sys.exit(1)


def _count(conn: Connection, wanted: JobFilter, action: SweepAction) -> tuple[int, list[UUID]]:
    sweep, matched = action.sweep(wanted, COUNT_PAGE), 0
    sample: list[UUID] = []
    while not sweep.is_finished:
        page = run(conn, sweep.page)
        action.check(conn, page.ids)
        matched += len(page.ids)
        sample += page.ids[: _SAMPLE - len(sample)]
        sweep.advance(page)
    return matched, sample


def _confirm(action: ManyAction, matched: int, how: How) -> None:
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
    conn: Connection, wanted: JobFilter, action: SweepAction, matched: int, how: How
) -> ActionReport:
    is_shown = matched > 0 and sys.stderr.isatty() and not how.as_json
    sweep = action.sweep(wanted, PAGE_SIZE)
    with click.progressbar(length=matched, file=sys.stderr, hidden=not is_shown) as bar:
        while not sweep.is_finished:
            page = run(conn, sweep.page)
            if page.ids:
                action.check(conn, page.ids)
                with audited(conn, action.verb, "jobs"):
                    outcomes = run(conn, sweep.act(page.ids))
                sweep.add(outcomes)
                bar.update(len(page.ids))
            sweep.advance(page)
    return sweep.report


def _print_dry_run(
    conn: Connection,
    action: SweepAction,
    matched: int,
    sample: list[UUID],
    how: How,
    question: str | None,
) -> None:
    found: list[dict[str, Any]]
    edits: list[JobEdit] = []
    if action.verb is ManyAction.EDIT:
        edits = run(conn, many_jobs.edits_of(sample, action.changes))
        found = list(map(_edit_document, edits))
    else:
        found = run(conn, statements.documents_of(sample))
    if how.as_json:
        print_json({"action": action.verb, "dry_run": True, "matched": matched, "sample": found})
        return
    because = f"; {question}" if question else "; nothing was changed"
    click.echo(f"would {action.verb} {count(matched, 'job')}{because}")
    if edits:
        _print_edits(edits)
    elif found:
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


def _edit_document(edit: JobEdit) -> dict[str, Any]:
    return {
        "id": edit.job_id,
        "task": edit.task,
        "queue": edit.queue,
        "state": edit.state,
        "former": orjson.Fragment(edit.former),
        "payload": orjson.Fragment(edit.payload),
    }


def _print_edits(edits: list[JobEdit]) -> None:
    for edit in edits:
        click.echo(f"{edit.job_id}  {edit.task}  {edit.queue}  {edit.state}")
        click.echo(f"  from  {one_line(edit.former, _SHOWN_PAYLOAD)}")
        click.echo(f"  to    {one_line(edit.payload, _SHOWN_PAYLOAD)}")


def _print_report(
    action: ManyAction, matched: int, report: ActionReport, how: How, question: str | None
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
        (report.gone, "not found, or changed by others meanwhile", ()),
        (report.refused, _refused_because(action), report.refused_ids),
        (report.locked, "skipped because another session holds the row", report.locked_ids),
    ):
        if number:
            click.echo(f"{count(number, 'job')} {why}")
            for job_id in ids[:_SAMPLE]:
                click.echo(f"  {job_id}")
    if report.locked:
        click.echo("run the command again for the skipped jobs")


def _refused_because(action: ManyAction) -> str:
    if action is ManyAction.EDIT:
        return "refused because of the state, or because the payload would be too long"
    return "refused because of the state"
