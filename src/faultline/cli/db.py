"""The commands `db start`, `stop`, `status` and `url`: the embedded server."""

from __future__ import annotations

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
def start() -> None:
    """Start the server, unless it is running."""
    was_running = embedded.status().running
    embedded.ensure_running()
    found = embedded.status()
    click.echo(f"{'already running' if was_running else 'started'}: process {found.pid}")
    click.echo(f"  data  {found.data_dir}")
    click.echo('  psql  "$(faultline db url)"')


@db.command()
def stop() -> None:
    """Stop the server; its data stays."""
    click.echo("stopped" if embedded.stop_running() else "the server was not running")


@db.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the server is running, and where."""
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
    """Print the server's URL with its password.

    Other programs can use it: psql "$(faultline db url)".
    """
    found = embedded.status()
    if found.url is None:
        raise EmbeddedServerError("the embedded server is not running", hint="faultline db start")
    click.echo(found.url)
