"""Commands for the database itself: its schema, and the embedded server for development."""

from __future__ import annotations

import click

from faultline import embedded
from faultline.cli.checks import Level
from faultline.cli.cluster_checks import search_path
from faultline.cli.context import Context
from faultline.cli.output import print_json
from faultline.cli.session import spoken_errors
from faultline.errors import EmbeddedServerError
from faultline.postgres.migrate import migrate as bring_up_to_date
from faultline.postgres.sessions import connect
from faultline.postgres.url import redact


@click.command()
@click.option("--roles", is_flag=True, help="Also create the roles for least privilege.")
@click.option(
    "--lock-timeout",
    type=click.FloatRange(min=0.001, max=3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up, with nothing changed, when a lock takes longer than this.",
)
@click.pass_obj
def migrate(context: Context, roles: bool, lock_timeout: float) -> None:
    """Bring the schema up to date: in one transaction, safe to repeat, safe to kill."""
    with spoken_errors():
        url = _url_to_migrate(context)
        report = bring_up_to_date(url, roles=roles, lock_timeout_seconds=lock_timeout)
        with connect(url, application_name="faultline migrate") as conn:
            misplaced = [each for each in search_path(conn) if each.level is Level.WARNING]
    for name in report.applied:
        click.echo(f"applied {name}")
    if report.functions_replaced:
        click.echo("installed the functions and triggers of this release")
    if not report.applied and not report.functions_replaced:
        click.echo("nothing to do")
    if roles:
        click.echo("the roles are in place, and the schema belongs to faultline_owner")
        click.echo(
            "  GRANT faultline_worker TO the accounts of your workers; docs/security.md has the rest"
        )
    click.echo(f"the schema is at version {report.version}")
    for found in misplaced:
        click.secho(f"warning: {found.name}: {found.says}", fg="yellow", err=True)
        click.echo(f"  try: {found.advice}", err=True)


def _url_to_migrate(context: Context) -> str:
    """Like Context.database_url, which would migrate an embedded server before we could say so."""
    if context.given_url or context.app_path:
        return context.database_url
    return embedded.ensure_running()


@click.group()
def db() -> None:
    """The embedded PostgreSQL for development: used when there is no DATABASE_URL."""


@db.command()
def start() -> None:
    """Start it, unless it runs already."""
    was_running = embedded.status().running
    embedded.ensure_running()
    found = embedded.status()
    click.echo(f"{'already running' if was_running else 'started'}: process {found.pid}")
    click.echo(f"  data  {found.data_dir}")
    click.echo('  psql  "$(faultline db url)"')


@db.command()
def stop() -> None:
    """Stop it; its data stays."""
    click.echo("stopped" if embedded.stop_running() else "it was not running")


@db.command()
@click.option("--json", "as_json", is_flag=True)
def status(as_json: bool) -> None:
    """Whether it runs, and where."""
    found = embedded.status()
    url = redact(found.url) if found.url else None
    if as_json:
        print_json(
            {
                "running": found.running,
                "pid": found.pid,
                "url": url,
                "version": found.version,
                "data_dir": str(found.data_dir),
            }
        )
        return
    click.echo(f"running: process {found.pid}" if found.running else "not running")
    for name, value in (("url", url), ("version", found.version), ("data", found.data_dir)):
        if value:
            click.echo(f"  {name:8}{value}")


@db.command()
def url() -> None:
    """Print its URL, password included, for other programs: psql "$(faultline db url)"."""
    found = embedded.status()
    if found.url is None:
        raise EmbeddedServerError("the embedded server is not running", hint="faultline db start")
    click.echo(found.url)
