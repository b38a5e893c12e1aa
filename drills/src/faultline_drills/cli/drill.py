"""`faultline drill`: the group of commands, each in its own module."""

from __future__ import annotations

import click

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


@click.group(cls=LazyGroup, modules=_MODULES)
def drill() -> None:
    """Rehearse failures on real processes and PostgreSQL.

    Without a database URL each drill starts its own PostgreSQL. With one, it creates a database on
    that server and drops it afterwards; faults that break a server are never injected into yours.
    """
