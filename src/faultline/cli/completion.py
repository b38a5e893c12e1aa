"""The command `completion`, and the completion of task and queue names in a shell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from faultline.app import Faultline
from faultline.cli.context import Context
from faultline.cli.global_options import given_options
from faultline.model import DEFAULT_QUEUE
from faultline.postgres.sessions import open_session, run
from faultline.statements import limits
from faultline.statements.queues import queues

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_FAULTLINE_COMPLETE"
_SECONDS = 1.0  # a person waits for the completion


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands in a shell.

    For bash, add this line to ~/.bashrc: eval "$(faultline completion bash)"
    """
    from faultline.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has all SHELLS
    click.echo(kind(cli, {}, "faultline", _VARIABLE).source())


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The tasks of the application, if one is named."""
    with _context(ctx) as context:
        if context.app_path is not None:
            context.app.import_tasks()
            return _starting_with(incomplete, set(context.app.tasks))
    return []


def complete_queue(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The queues of the application's tasks and of the database, if one is given.

    An embedded server is not started for this.
    """
    found = {DEFAULT_QUEUE}
    with _context(ctx) as context:
        if context.app_path is not None:
            found |= queues_of(context.app)
    with _context(ctx) as context:
        if (url := context.given_url) is not None:
            conn, _ = open_session(
                url,
                application_name="faultline completion",
                answer_seconds=_SECONDS,
                connect_seconds=_SECONDS,
            )
            with conn:
                found |= {each.queue for each in run(conn, queues(exact_up_to=1))}
    return _starting_with(incomplete, found)


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The last one of several queues that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    given = set(before.split(","))
    found = complete_queue(ctx, param, last)
    return [f"{before}{comma}{name}" for name in found if name not in given]


def complete_limit(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The limits of the application's code and of the database, if one is given."""
    found: set[str] = set()
    with _context(ctx) as context:
        if context.app_path is not None:
            context.app.import_tasks()
            found |= set(context.app.declared_limits())
    with _context(ctx) as context:
        if (url := context.given_url) is not None:
            conn, _ = open_session(
                url,
                application_name="faultline completion",
                answer_seconds=_SECONDS,
                connect_seconds=_SECONDS,
            )
            with conn:
                found |= {use.name for use in run(conn, limits.uses(count_up_to=1))}
    return _starting_with(incomplete, found)


def queues_of(app: Faultline) -> set[str]:
    """The queues of the application's tasks, and `default`."""
    app.import_tasks()
    return {DEFAULT_QUEUE, *(task.settings.queue for task in app.tasks.values())}


def _starting_with(incomplete: str, names: set[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


@contextlib.contextmanager
def _context(ctx: click.Context) -> Iterator[Context]:
    """The context of the command line so far; discards errors and output of the app."""
    options = given_options(ctx)
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        contextlib.suppress(Exception),
    ):
        yield Context(app_path=options.get("app"), given_url=options.get("database_url"))
