"""The command `inspector serve`: the dashboard and its API."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from faultline import __version__
from faultline.cli.context import Context
from faultline.errors import InvalidSettings
from faultline.inspector.inspector_settings import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    MAX_STREAMS,
    STREAMS_PER_ADDRESS,
    InspectorSettings,
)
from faultline.postgres.migrate import require_current_schema, require_schema
from faultline.postgres.url import redact
from faultline.serving.limits import is_loopback
from faultline.termination import Termination

_WARNING = "every client that reaches this address can read every job and its payload"


@click.group()
def inspector() -> None:
    """Serve a read-only dashboard of the queue."""


@inspector.command()
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port to listen on; 0 chooses a free one.",
)
@click.option("--expose", is_flag=True, help=f"Allow a --host that is not loopback: {_WARNING}.")
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name, besides localhost, under which browsers may open it; may be repeated.",
)
@click.option(
    "--api-url",
    metavar="URL",
    help="The URL of `faultline api`; operators with a key can then retry, cancel and pause.",
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path),
    default=Path("reports/latest"),
    show_default=True,
    help="The folder with the summaries of drills and benchmarks.",
)
@click.option(
    "--max-streams",
    type=click.IntRange(1, 400),
    default=MAX_STREAMS,
    show_default=True,
    help="How many dashboards may be open at once.",
)
@click.option(
    "--streams-per-address",
    type=click.IntRange(1, 400),
    default=STREAMS_PER_ADDRESS,
    show_default=True,
    help="How many dashboards may be open at once from one address.",
)
@click.option(
    "--tls-proxy",
    "behind_proxy",
    is_flag=True,
    help="Trust X-Forwarded-For and X-Forwarded-Proto, which a proxy in front of it sets.",
)
@click.pass_obj
def serve(
    context: Context,
    host: str,
    port: int,
    expose: bool,
    allowed_hosts: tuple[str, ...],
    api_url: str | None,
    reports: Path,
    max_streams: int,
    streams_per_address: int,
    behind_proxy: bool,
) -> None:
    """Serve the dashboard and its API until SIGTERM or SIGINT."""
    if not all(map(importlib.util.find_spec, ("fastapi", "uvicorn"))):
        raise InvalidSettings(
            "the inspector needs FastAPI and uvicorn", hint="pip install 'faultline-queue[api]'"
        )
    settings = InspectorSettings(
        database_url=context.database_url,
        host=host,
        port=port,
        expose=expose,
        allowed_hosts=allowed_hosts,
        api_url=api_url,
        reports=reports,
        max_streams=max_streams,
        streams_per_address=streams_per_address,
        behind_proxy=behind_proxy,
        version=__version__,
    )

    def announce(address: str) -> None:
        click.echo(
            f"faultline inspector on {address}, reading {redact(settings.database_url)}", err=True
        )
        if not is_loopback(host):
            click.echo(f"warning: {_WARNING}", err=True)

    with Termination() as termination:
        require_schema(settings.database_url, require_current_schema)

        from faultline.inspector.application import make_app
        from faultline.inspector.services import make_services
        from faultline.serving.server import serve as serve_app

        services = make_services(settings)
        serve_app(
            make_app(settings, services),
            settings.server_limits,
            on_bound=announce,
            on_stop=services.broadcast.close,  # streams have no end of their own
            termination=termination,
        )
