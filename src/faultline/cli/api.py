"""The command `api`: serves the HTTP API, with the fields of ApiSettings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from faultline.api import ApiSettings
from faultline.cli.context import Context
from faultline.errors import InvalidSettings
from faultline.postgres.migrate import require_current_schema, require_schema
from faultline.termination import Termination
from faultline.tracing.export import exporting


def _limits(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each limit of ApiSettings: --body-bytes, --page-size, …"""
    for limit in reversed(fields(ApiSettings)):
        if "help" in limit.metadata:
            option = click.option(
                f"--{limit.name.replace('_', '-')}",
                type=type(limit.default),
                default=limit.default,
                show_default=True,
                envvar=f"FAULTLINE_API_{limit.name.upper()}",
                help=limit.metadata["help"],
            )
            command = option(command)
    return command


@click.command()
@click.option(
    "--host",
    default=ApiSettings.host,
    show_default=True,
    envvar="FAULTLINE_API_HOST",
    help="The address to listen on.",
)
@_limits
@click.option(
    "--tls-proxy",
    "behind_proxy",
    is_flag=True,
    help="Trust X-Forwarded-For, which a proxy in front sets: its last element is the client.",
)
@click.option("--open-metrics", is_flag=True, help="Serve GET /metrics without a key.")
@click.option(
    "--insecure-no-keys",
    is_flag=True,
    help="For development, on a loopback address only: serve every request without a key.",
)
@click.pass_obj
def api(context: Context, /, insecure_no_keys: bool, **options: Any) -> None:
    """Serve the HTTP API to enqueue, read and operate jobs.

    Clients need a key: faultline keys create.
    """
    settings = ApiSettings(require_keys=not insecure_no_keys, **options)
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None:
        raise InvalidSettings(
            "the API needs FastAPI and uvicorn", hint="pip install 'faultline-queue[api]'"
        )
    url = context.database_url

    def announce(address: str) -> None:
        click.echo(f"faultline api on {address}")
        if insecure_no_keys:
            click.secho(
                "KEYS ARE OFF: every program on this machine can enqueue, read and cancel jobs.",
                fg="red",
                bold=True,
                err=True,
            )

    with Termination() as termination:
        require_schema(url, require_current_schema)

        from faultline.api.application import create_api, end_waits
        from faultline.serving.server import serve

        app = context.app if context.app_path is not None else None
        if app is not None:
            app.import_tasks()
        with exporting("api"):
            api = create_api(url, settings, app=app)
            serve(
                api,
                settings.server_limits,
                on_bound=announce,
                termination=termination,
                on_stop=lambda: end_waits(api),
            )
