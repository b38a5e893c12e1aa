"""The command `doctor`: runs every check and prints the findings."""

from __future__ import annotations

import sys

import click

from faultline.cli.context import Context
from faultline.cli.doctor.check import Check, CheckFunction, Level, problem, warning
from faultline.cli.doctor.connection import connection_checks, encryption
from faultline.cli.doctor.queue import epoch, leases, prepared_transactions, stored_sizes, workers
from faultline.cli.doctor.schedules import schedules
from faultline.cli.doctor.schema import roles, schema, search_path
from faultline.cli.doctor.server import (
    clock,
    connections,
    durability,
    isolation,
    long_transactions,
    replication,
    role_of_the_server,
    text_forms,
    timeouts,
    version,
)
from faultline.cli.output import LEVEL_COLORS, count, json_option, print_json
from faultline.errors import FaultlineError
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import explain_error, is_connection_lost
from faultline.postgres.sessions import Connection, open_session
from faultline.wording import plain

SERVER_CHECKS: tuple[CheckFunction, ...] = (
    version,
    role_of_the_server,
    durability,
    clock,
    isolation,
    timeouts,
    text_forms,
    replication,
    search_path,
    connections,
    long_transactions,
)
# These read Faultline's tables, so they need the current schema.
RECORD_CHECKS: tuple[CheckFunction, ...] = (
    epoch,
    prepared_transactions,
    workers,
    leases,
    stored_sizes,
    schedules,
    roles,
)


@click.command()
@json_option
@click.pass_obj
def doctor(context: Context, as_json: bool) -> None:
    """Check the server, its settings, the schema and the queue.

    The exit code is 1 if there is a problem.
    """
    checks = _run_checks(context.database_url)
    problems = sum(found.level is Level.PROBLEM for found in checks)
    warnings = sum(found.level is Level.WARNING for found in checks)
    if as_json:
        print_json({"ok": not problems, "checks": checks})
    else:
        for found in checks:
            _print_check(found)
        summary = f"{count(problems, 'problem')}, {count(warnings, 'warning')}"
        click.secho(summary, bold=True, fg="red" if problems else "green")
    if problems:
        sys.exit(1)


def _run_checks(url: str) -> list[Check]:
    """Run all checks; one that fails is reported and does not stop the others."""
    try:
        conn, found = open_session(url, application_name="faultline doctor")
    except FaultlineError as error:
        return [problem("connection", error.message, _advice(error))]
    with conn:
        checks = [*connection_checks(conn, found), *_run_check(encryption, conn)]
        installed = _run_check(schema, conn)
        checks += installed
        records = RECORD_CHECKS if installed[0].level is Level.OK else ()
        for check_function in (*SERVER_CHECKS, *records):
            checks += _run_check(check_function, conn)
        return checks


def _run_check(check_function: CheckFunction, conn: Connection) -> list[Check]:
    name = check_function.__name__.replace("_", " ")
    try:
        return list(check_function(conn))
    except (DriverError, FaultlineError) as error:
        explained = explain_error(error) if isinstance(error, DriverError) else error
        if is_connection_lost(error):
            return [problem(name, explained.message, _advice(explained))]
        return [warning(name, f"could not be checked: {explained.message}", _advice(explained))]


def _advice(error: FaultlineError) -> str:
    """The error's hint, unless it names this command."""
    hint = error.hint or ""
    return "see the server's log" if "faultline doctor" in hint else hint


def _print_check(found: Check) -> None:
    mark = {Level.OK: "ok", Level.WARNING: "warning", Level.PROBLEM: "PROBLEM"}[found.level]
    loud = found.level is not Level.OK
    styled = click.style(f"{mark:8}", fg=LEVEL_COLORS[found.level], bold=loud)
    click.echo(f"{styled} {found.name:22} {plain(found.says)}")
    if found.advice:
        click.echo(f"{'':31} → {plain(found.advice)}")
