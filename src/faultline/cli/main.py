"""The command `faultline`: its global options, and where its subcommands come from.

What most commands need, the driver above all, is imported when it is needed: a probe (`faultline health`) is
started every few seconds, and needs none of it.
"""

from __future__ import annotations

import logging
import sys

import click

from faultline import __version__
from faultline.cli.lazy_group import LazyGroup
from faultline.cli.standard_streams import open_closed_streams
from faultline.errors import FaultlineError
from faultline.wording import plain

# Each command is defined in the module of its name.
COMMANDS = {
    name: f"faultline.cli.{name}"
    for name in (
        "migrate",
        "worker",
        "reconciler",
        "drain",
        "health",
        "api",
        "keys",
        "enqueue",
        "jobs",
        "queues",
        "audit",
        "why",
        "verify",
        "doctor",
        "purge",
        "db",
        "epoch",
        "inspector",
        "top",
    )
}
# Fault injection and measurements are a distribution of their own: a production image does not hold them.
_DRILLS = "faultline-queue[drills]"
COMMANDS_OF_THE_DRILLS = {"demo": _DRILLS, "drill": _DRILLS, "bench": _DRILLS}


@click.group(
    cls=LazyGroup,
    modules=COMMANDS,
    elsewhere=COMMANDS_OF_THE_DRILLS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="faultline")
@click.option("--app", metavar="MODULE:NAME", envvar="FAULTLINE_APP", help="Your Faultline object.")
@click.option(
    "--database-url",
    metavar="URL",
    help="PostgreSQL to use; else DATABASE_URL, the file that DATABASE_URL_FILE names, the app's own,"
    " or an embedded one for development.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "console"]),
    default="auto",
    show_default=True,
    help="Events on stderr: readable on a terminal, JSON lines otherwise.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say routine events too: claims, commits, …")
@click.pass_context
def cli(
    ctx: click.Context, app: str | None, database_url: str | None, log_format: str, verbose: bool
) -> None:
    """Crash-safe jobs on PostgreSQL: your writes commit under a fence, or not at all."""
    if ctx.invoked_subcommand == "health":
        return  # it asks a file or a URL: no application, no database, no log
    from faultline.cli.context import Context
    from faultline.events import log
    from faultline.postgres import address

    log.open(style=log_format, verbose=verbose)
    # The driver's own remarks are no events; what they mean is said by whoever meets the error.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    url = database_url or address.from_environment()
    ctx.obj = Context(app_path=app, given_url=url, log_format=log_format, verbose=verbose)


def main() -> None:
    """Run the command; a user's mistake is one clear line and exit code 1, not a traceback."""
    open_closed_streams()
    if any(word.startswith("--database-url") for word in sys.argv[1:]):
        from faultline.cli.database_url_option import conceal_passwords

        conceal_passwords(sys.argv[1:])
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("aborted", err=True)
        sys.exit(130)
    except FaultlineError as error:
        _complain(error)
        sys.exit(1)
    except Exception as error:
        from faultline.postgres.driver import DriverError
        from faultline.postgres.errors import explain_error

        if not isinstance(error, DriverError):
            raise
        _complain(explain_error(error))
        sys.exit(1)


def _complain(error: FaultlineError) -> None:
    click.echo(
        f"{click.style('error', fg='red', bold=True)} [{error.code}] {plain(error.message)}",
        err=True,
    )
    if error.hint:
        click.echo(f"  try: {plain(error.hint)}", err=True)
