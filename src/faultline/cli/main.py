"""The command `faultline`: global options, the table of commands and error output.

Modules that most commands need, above all the driver, are imported on use: `faultline health` runs as a
probe every few seconds and needs none of them.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from faultline import __version__
from faultline.cli.lazy_group import LazyGroup
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
# The drills are a separate distribution, which production images do not install.
_DRILLS = "faultline-queue[drills]"
COMMANDS_OF_THE_DRILLS = {"demo": _DRILLS, "drill": _DRILLS, "bench": _DRILLS}


@click.group(
    cls=LazyGroup,
    modules=COMMANDS,
    elsewhere=COMMANDS_OF_THE_DRILLS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="faultline")
@click.option(
    "--app",
    metavar="MODULE:NAME",
    envvar="FAULTLINE_APP",
    help="The Faultline object of your application.",
)
@click.option(
    "--database-url",
    metavar="URL",
    help="The PostgreSQL to use. Default: DATABASE_URL, the file that DATABASE_URL_FILE names, the URL of the"
    " app, or an embedded server for development.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "console"]),
    default="auto",
    show_default=True,
    help="How events are written to stderr; auto is text on a terminal and JSON lines elsewhere.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Also log routine events, such as claims and commits."
)
@click.pass_context
def cli(
    ctx: click.Context, app: str | None, database_url: str | None, log_format: str, verbose: bool
) -> None:
    """Faultline is a crash-safe job queue on PostgreSQL.

    A job's writes commit under its fencing token, or not at all.
    """
    if ctx.invoked_subcommand == "health":
        return  # it reads a file or a URL, and needs no application, database or log
    from faultline.cli.context import Context
    from faultline.events import log
    from faultline.postgres.url import url_from_environment

    log.open(style=log_format, verbose=verbose)
    # The driver logs errors too; Faultline reports each error where it is handled.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    url = database_url or url_from_environment()
    ctx.obj = Context(app_path=app, given_url=url, log_format=log_format, verbose=verbose)


def main() -> None:
    """Run the command line; an error is one line and exit code 1."""
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
        _abort()
    except FaultlineError as error:
        if _was_interrupted(error):
            _abort()
        _print_error(error)
        sys.exit(1)
    except Exception as error:
        from faultline.postgres.driver import DriverError
        from faultline.postgres.errors import explain_error

        if not isinstance(error, DriverError):
            raise
        if _was_interrupted(error):
            _abort()
        _print_error(explain_error(error))
        sys.exit(1)


def _was_interrupted(error: BaseException) -> bool:
    """Whether the error came up while a KeyboardInterrupt was handled.

    The driver answers an interrupt by asking the server to cancel the query, which can fail too.
    """
    seen: set[int] = set()
    before: BaseException | None = error
    while before is not None and id(before) not in seen:
        if isinstance(before, KeyboardInterrupt):
            return True
        seen.add(id(before))
        before = before.__context__
    return False


def _abort() -> NoReturn:
    click.echo("aborted", err=True)
    sys.exit(130)


def _print_error(error: FaultlineError) -> None:
    click.echo(
        f"{click.style('error', fg='red', bold=True)} [{error.code}] {plain(error.message)}",
        err=True,
    )
    if error.hint:
        click.echo(f"  try: {plain(error.hint)}", err=True)


_NAMES = ("stdin", "stdout", "stderr")


def open_closed_streams() -> None:
    """Open standard streams that were closed at the start (`2>&-`) on /dev/null.

    Otherwise the next socket gets the number 0, 1 or 2, and output of a library or a child process to
    "stderr" goes to the database. Python itself has no `sys.stderr` then. It must run before the process
    opens any other file.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - kept open
