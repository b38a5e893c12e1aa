"""The command `why`: explains why a job is not running."""

from __future__ import annotations

from uuid import UUID

import click

from faultline.cli.context import Context, session, with_lock_timeout
from faultline.cli.output import duration, json_option, one_line, print_json
from faultline.errors import UnknownJob
from faultline.explanation import Answer, Situation, explain
from faultline.postgres.driver import DriverError
from faultline.postgres.sessions import Connection, run
from faultline.statements import clock, epochs, jobs, leadership, locks, queues, workers
from faultline.statements.locks import LockHolder
from faultline.statements.workers import WorkerStatus
from faultline.wording import plain


@click.command()
@click.argument("job", type=click.UUID)
@json_option
@click.pass_obj
def why(context: Context, job: UUID, as_json: bool) -> None:
    """Explain why a job is not running."""
    with session(context) as conn, with_lock_timeout(conn):
        answer = explain(read_situation(conn, job))
    if as_json:
        print_json(answer)
    else:
        _print_answer(answer)


def read_situation(conn: Connection, job_id: UUID) -> Situation:
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
        is_led=run(conn, leadership.is_led()),
        ahead=ahead,
        ahead_elsewhere=ahead_elsewhere,
        holders=_lock_holders(conn, job_id),
        pause=next((z for z in run(conn, queues.paused()) if z.queue == record.queue), None),
        deferral=run(conn, jobs.deferral_of(job_id)),
        was_restored=run(conn, epochs.status()).is_refused,
    )


def _lock_holders(conn: Connection, job_id: UUID) -> list[LockHolder]:
    """The transactions that lock the job's row, so that it cannot be claimed."""
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
    except DriverError:  # a single transaction, which has ended meanwhile
        return []
    return run(conn, locks.holders(members))


def _print_answer(answer: Answer) -> None:
    click.secho(plain(answer.answer), bold=True)
    for name, value in answer.facts.items():
        if name.endswith(("_seconds", "_seconds_ago")):
            name = name.replace("_seconds", "")
            value = duration(value) if value >= 0 else f"-{duration(-value)}"
        for line in value if isinstance(value, list) else [value]:
            click.echo(f"  {name.replace('_', ' '):22}{one_line(line)}")
    for line in answer.advice:
        click.echo(f"→ {plain(line)}")
