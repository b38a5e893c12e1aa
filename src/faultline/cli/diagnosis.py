"""Commands that find out: why a job does not run, whether the records hold, whether all is well."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.progress import track
from rich.text import Text

from faultline.cli.checks import (
    SERVER,
    Check,
    Examination,
    Level,
    connection_checks,
    problem,
    schema,
    warning,
)
from faultline.cli.cluster_checks import EXAMINATIONS as CLUSTER
from faultline.cli.context import Context
from faultline.cli.encryption import encryption
from faultline.cli.output import (
    LEVEL_COLORS,
    count,
    duration,
    one_line,
    print_json,
    print_table,
)
from faultline.cli.session import impatient, session
from faultline.cli.upkeep import RECORDS, SESSIONS
from faultline.errors import FaultlineError, UnknownJob
from faultline.explanation import Answer, Situation, explain
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import explain_error, is_connection_lost
from faultline.postgres.sessions import Connection, open_session, run
from faultline.reconciler.audit import INVARIANTS, Finding, Invariant, check
from faultline.statements import clock, epochs, jobs, locks, queues, workers
from faultline.statements.locks import LockHolder
from faultline.statements.workers import WorkerStatus
from faultline.wording import plain

_SHOWN_EVIDENCE = 3

# ── why ──────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("job", type=click.UUID)
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def why(context: Context, job: UUID, as_json: bool) -> None:
    """One answer to: why is this job not running?"""
    with session(context) as conn, impatient(conn):
        answer = explain(_look_at(conn, job))
    if as_json:
        print_json(answer)
    else:
        _say(answer)


def _look_at(conn: Connection, job_id: UUID) -> Situation:
    record = run(conn, jobs.get_job(job_id))
    if record is None:
        raise UnknownJob(f"there is no job {job_id}", hint="faultline jobs list")
    registered = run(conn, workers.registry())
    shared = {
        name
        for worker in registered
        if worker.status is WorkerStatus.ALIVE and record.queue in worker.queues
        for name in worker.queues
    }
    ahead, ahead_elsewhere = run(conn, jobs.jobs_ahead(job_id, sorted(shared)))
    return Situation(
        now=run(conn, clock.database_time()),
        job=record,
        workers=registered,
        is_led=run(conn, workers.is_led()),
        ahead=ahead,
        ahead_elsewhere=ahead_elsewhere,
        holders=_lock_holders(conn, job_id),
        pause=next((z for z in run(conn, queues.paused()) if z.queue == record.queue), None),
        deferral=run(conn, jobs.deferral_of(job_id)),
        was_restored=run(conn, epochs.status()).is_refused,
    )


def _lock_holders(conn: Connection, job_id: UUID) -> list[LockHolder]:
    """The transactions that keep a claim from this row."""
    if run(conn, locks.may_probe()):
        with conn.transaction(force_rollback=True):
            if not run(conn, locks.probe_lock(job_id)):
                return []
    locker = run(conn, locks.last_locker(job_id))
    if locker is None:
        return []
    if found := run(conn, locks.holders([locker])):
        return found
    try:
        with conn.transaction():
            members = run(conn, locks.lockers_behind(locker))
    except DriverError:  # it was a plain transaction, which has ended meanwhile
        return []
    return run(conn, locks.holders(members))


def _say(answer: Answer) -> None:
    click.secho(plain(answer.answer), bold=True)
    for name, value in answer.facts.items():
        if name.endswith(("_seconds", "_seconds_ago")):
            name = name.replace("_seconds", "")
            value = duration(value) if value >= 0 else f"-{duration(-value)}"
        for line in value if isinstance(value, list) else [value]:
            click.echo(f"  {name.replace('_', ' '):22}{one_line(line)}")
    for line in answer.advice:
        click.echo(f"→ {plain(line)}")


# ── verify ───────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def verify(context: Context, as_json: bool) -> None:
    """Check every invariant against the records themselves; exit code 1 if one is violated."""
    with session(context) as conn:
        progress = track(
            INVARIANTS,
            description="checking",
            console=Console(stderr=True),
            transient=True,
            disable=as_json or not sys.stderr.isatty(),
        )
        results = [(invariant, run(conn, check(invariant))) for invariant in progress]
    violated = [invariant.name for invariant, findings in results if findings]
    if as_json:
        invariants = [_result(invariant, findings) for invariant, findings in results]
        print_json({"ok": not violated, "invariants": invariants})
    else:
        print_table(["", "claim", "violations"], [_row(*result) for result in results])
        held = f"{len(results) - len(violated)} of {len(results)} invariants hold"
        click.secho(held, fg="red" if violated else "green", bold=True)
        if violated:
            click.echo("→ keep the evidence: pg_dump --schema=faultline; then report it")
    if violated:
        sys.exit(1)


def _result(invariant: Invariant, findings: list[Finding]) -> dict[str, Any]:
    return {
        "name": invariant.name,
        "claim": invariant.claim,
        "ok": not findings,
        "violations": len(findings),
        "evidence": findings,
    }


def _row(invariant: Invariant, findings: list[Finding]) -> list[str | Text]:
    if not findings:
        return [Text("ok", style="green"), invariant.claim, ""]
    shown = [f"{found.job_id}: {found.evidence}" for found in findings[:_SHOWN_EVIDENCE]]
    if more := len(findings) - len(shown):
        shown.append(f"and at least {more} more")
    return [Text("VIOLATED", style="bold red"), invariant.claim, "\n".join(shown)]


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def doctor(context: Context, as_json: bool) -> None:
    """Look at the server, its settings and its sessions; exit code 1 if there is a problem."""
    checks = _examine(context.database_url)
    problems = sum(found.level is Level.PROBLEM for found in checks)
    warnings = sum(found.level is Level.WARNING for found in checks)
    if as_json:
        print_json({"ok": not problems, "checks": checks})
    else:
        for found in checks:
            _say_check(found)
        said = f"{count(problems, 'problem')}, {count(warnings, 'warning')}"
        click.secho(said, bold=True, fg="red" if problems else "green")
    if problems:
        sys.exit(1)


def _examine(url: str) -> list[Check]:
    """Everything, as far as it can be reached: what one check may not see does not stop the others."""
    try:
        conn, found = open_session(url, application_name="faultline doctor")
    except FaultlineError as error:
        return [problem("connection", error.message, error.hint)]
    with conn:
        checks = [*connection_checks(conn, found), *_guarded(encryption, conn)]
        installed = _guarded(schema, conn)
        checks += installed
        records = RECORDS if installed[0].level is Level.OK else ()
        for examination in (*SERVER, *CLUSTER, *SESSIONS, *records):
            checks += _guarded(examination, conn)
        return checks


def _guarded(examination: Examination, conn: Connection) -> list[Check]:
    name = examination.__name__.removeprefix("_").replace("_", " ")
    try:
        return list(examination(conn))
    except (DriverError, FaultlineError) as error:
        said = explain_error(error) if isinstance(error, DriverError) else error
        if is_connection_lost(error):
            return [problem(name, said.message, said.hint)]
        return [warning(name, f"could not be checked: {said.message}", said.hint or "")]


def _say_check(found: Check) -> None:
    mark = {Level.OK: "ok", Level.WARNING: "warning", Level.PROBLEM: "PROBLEM"}[found.level]
    loud = found.level is not Level.OK
    styled = click.style(f"{mark:8}", fg=LEVEL_COLORS[found.level], bold=loud)
    click.echo(f"{styled} {found.name:22} {plain(found.says)}")
    if found.advice:
        click.echo(f"{'':31} → {plain(found.advice)}")
