"""The command `migrate`: installs or upgrades the schema."""

from __future__ import annotations

from dataclasses import asdict

import click

from faultline import embedded
from faultline.cli.context import Context
from faultline.cli.doctor.check import Level
from faultline.cli.doctor.schema import search_path
from faultline.cli.output import json_option, print_json
from faultline.postgres.errors import driver_errors
from faultline.postgres.migrate import migrate as bring_up_to_date
from faultline.postgres.sessions import connect


@click.command()
@click.option("--roles", is_flag=True, help="Also create the roles for least privilege.")
@click.option(
    "--lock-timeout",
    type=click.FloatRange(min=0.001, max=3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up, and change nothing, if a lock is not granted within this time.",
)
@json_option
@click.pass_obj
def migrate(context: Context, roles: bool, lock_timeout: float, as_json: bool) -> None:
    """Install the schema, or upgrade it.

    This is one transaction: it is safe to repeat and safe to kill.
    """
    with driver_errors():
        url = _url_to_migrate(context)
        report = bring_up_to_date(url, roles=roles, lock_timeout_seconds=lock_timeout)
        with connect(url, application_name="faultline migrate") as conn:
            misplaced = [each for each in search_path(conn) if each.level is Level.WARNING]
    if as_json:
        print_json({**asdict(report), "roles": roles, "warnings": misplaced})
        return
    for name in report.applied:
        click.echo(f"applied {name}")
    if report.functions_replaced:
        click.echo("installed the functions and triggers of this release")
    if not report.applied and not report.functions_replaced:
        click.echo("nothing to do")
    if roles:
        click.echo("the roles exist, and the schema belongs to faultline_owner")
        click.echo(
            "  next: GRANT faultline_worker TO the accounts of your workers; see docs/security.md"
        )
    click.echo(f"the schema is at version {report.version}")
    for found in misplaced:
        click.secho(f"warning: {found.name}: {found.says}", fg="yellow", err=True)
        click.echo(f"  try: {found.advice}", err=True)


def _url_to_migrate(context: Context) -> str:
    """Like Context.database_url, but does not migrate an embedded server yet."""
    if context.given_url or context.app_path:
        return context.database_url
    return embedded.ensure_running()
