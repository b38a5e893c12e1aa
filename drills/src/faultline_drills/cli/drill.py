"""`faultline drill`: the group of commands, each in its own module."""

from __future__ import annotations

import click

from faultline.cli.context import Context
from faultline.cli.lazy_group import LazyGroup

_MODULES = {
    "list": "faultline_drills.cli.list:list_scenarios",
    "run": "faultline_drills.cli.run",
    "explore": "faultline_drills.cli.explore",
    "sweep": "faultline_drills.cli.sweep",
    "soak": "faultline_drills.cli.soak",
    "mutants": "faultline_drills.cli.mutants",
    "replay": "faultline_drills.cli.replay",
    "recovery": "faultline_drills.cli.recovery",
    "report": "faultline_drills.cli.report",
}


def _use_server(ctx: click.Context, param: click.Parameter, url: str | None) -> None:
    if url is not None:
        ctx.ensure_object(Context).given_url = url


class DrillGroup(LazyGroup):
    """Adds --database-url to every command that does not have it."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None and all(param.name != "database_url" for param in command.params):
            command.params.append(
                click.Option(
                    ["--database-url"],
                    metavar="URL",
                    expose_value=False,
                    callback=_use_server,
                    help="Run on this server, in a new database that is dropped afterwards.",
                )
            )
        return command


@click.group(cls=DrillGroup, modules=_MODULES)
def drill() -> None:
    """Rehearse failures on real processes and PostgreSQL.

    Without a database URL each drill starts its own PostgreSQL. With one, it creates a database on
    that server and drops it afterwards; faults that break a server are never injected into yours.
    """
