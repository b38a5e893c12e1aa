"""The commands `db start`, `stop`, `status` and `url`: the embedded server."""

from __future__ import annotations

from typing import Any

import click

from faultline import embedded
from faultline.cli.output import json_option, print_json
from faultline.errors import EmbeddedServerError
from faultline.postgres.url import redact


@click.group()
def db() -> None:
    """Run the embedded PostgreSQL for development.

    Faultline uses it when no DATABASE_URL is given.
    """


@db.command()
@json_option
def start(as_json: bool) -> None:
    """Start the server, unless it is running."""
    was_running = embedded.status().running
    embedded.ensure_running(announces=False)
    found = embedded.status()
    if as_json:
        print_json({"was_running": was_running, **_facts(found)})
        return
    click.echo(f"{'already running' if was_running else 'started'}: process {found.pid}")
    click.echo(f"  data  {found.data_dir}")
    click.echo('  psql  "$(faultline db url)"')


@db.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop the server; its data stays."""
    was_running = embedded.stop_running()
    if as_json:
        print_json({"was_running": was_running})
    else:
        click.echo("stopped" if was_running else "the server was not running")


@db.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the server is running, and where."""
    found = embedded.status()
    facts = _facts(found)
    if as_json:
        print_json(facts)
        return
    click.echo(f"running: process {found.pid}" if found.running else "not running")
    shown = {"url": facts["url"], "version": found.version, "data": found.data_dir}
    for name, value in shown.items():
        if value:
            click.echo(f"  {name:8}{value}")


def _facts(found: embedded.ServerStatus) -> dict[str, Any]:
    return {
        "running": found.running,
        "pid": found.pid,
        "url": redact(found.url) if found.url else None,
        "version": found.version,
        "data_dir": str(found.data_dir),
    }


@db.command()
@json_option
def url(as_json: bool) -> None:
    """Print the server's URL with its password.

    Other programs can use it: psql "$(faultline db url)".
    """
    found = embedded.status()
    if found.url is None:
        raise EmbeddedServerError("the embedded server is not running", hint="faultline db start")
    if as_json:
        print_json({"url": found.url})
    else:
        click.echo(found.url)
