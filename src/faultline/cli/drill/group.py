"""`faultline drill`: its commands, each in a module of its own."""

from __future__ import annotations

import click

from faultline.cli.lazy import LazyGroup

_MODULES = {
    "list": "faultline.cli.drill.run:list_scenarios",
    "run": "faultline.cli.drill.run",
    "explore": "faultline.cli.drill.explore",
    "sweep": "faultline.cli.drill.sweep",
    "soak": "faultline.cli.drill.soak",
    "mutants": "faultline.cli.drill.mutants",
    "replay": "faultline.cli.drill.replay",
    "recovery": "faultline.cli.drill.recovery",
    "report": "faultline.cli.drill.report",
}


@click.group(cls=LazyGroup, modules=_MODULES)
def drill() -> None:
    """Rehearse failures on real processes and a real PostgreSQL.

    Without a database URL each drill starts a PostgreSQL of its own. With one it works in a database
    of its own on that server, and leaves nothing behind; what breaks a server is never done to yours.
    """
