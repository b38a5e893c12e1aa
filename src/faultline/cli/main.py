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
from faultline.cli.global_options import leading_options
from faultline.cli.lazy_group import LazyGroup
from faultline.cli.usage_errors import UsageProblem, is_help, system_problem, usage_problem
from faultline.errors import FaultlineError, InvalidSettings
from faultline.wording import plain

# Each command is defined in the module of its name.
COMMANDS = {
    name: f"faultline.cli.{name}"
    for name in (
        "init",
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
        "schedules",
        "limits",
        "audit",
        "why",
        "verify",
        "doctor",
        "purge",
        "db",
        "epoch",
        "inspector",
        "top",
        "completion",
    )
}
DISTRIBUTION = "faultline-queue"  # `faultline` on PyPI is another project
# The drills are a separate distribution, which production images do not install.
_DRILLS = f"{DISTRIBUTION}[drills]"
COMMANDS_OF_THE_DRILLS = {"demo": _DRILLS, "drill": _DRILLS, "bench": _DRILLS}


@click.group(
    cls=LazyGroup,
    modules=COMMANDS,
    elsewhere=COMMANDS_OF_THE_DRILLS,
    params=leading_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message=f"{DISTRIBUTION} %(version)s (faultline)")
@click.pass_context
def cli(
    ctx: click.Context, app: str | None, database_url: str | None, log_format: str, verbose: bool
) -> None:
    """Faultline is a crash-safe job queue on PostgreSQL.

    A job's writes commit under its fencing token, or not at all. The options below may also follow the
    name of a command.
    """
    if ctx.invoked_subcommand in ("health", "init"):
        return  # they need no application, database or log
    from faultline.cli.context import Context

    ctx.obj = Context(app_path=app, given_url=database_url, log_format=log_format, verbose=verbose)
    ctx.obj.open_log()
    # The driver logs errors too; Faultline reports each error where it is handled.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)


def main() -> None:
    """Run the command line; an error is one line and exit code 1.

    It is 2 if the command line or the settings are wrong, so that a restart would not help.
    """
    open_closed_streams()
    if any(word.startswith("--database-url") for word in sys.argv[1:]):
        from faultline.cli.database_url_option import conceal_passwords

        conceal_passwords(sys.argv[1:])
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        if is_help(error):
            error.show()
        else:
            _print_error(usage_problem(error))
        sys.exit(error.exit_code)
    except click.Abort:
        _abort()
    except FaultlineError as error:
        if _was_interrupted(error):
            _abort()
        _print_error(error)
        sys.exit(2 if isinstance(error, InvalidSettings | UsageProblem) else 1)
    except OSError as error:  # a file that cannot be read or written
        _print_error(system_problem(error))
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
