"""The command `top`: the queue at a glance, in a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import click
from rich.console import RenderableType
from rich.live import Live

from faultline.cli.context import Context
from faultline.cli.frame import AT_A_GLANCE, Glance, away, frame
from faultline.cli.output import console
from faultline.errors import FaultlineError, InvalidSettings
from faultline.inspector import leases, overview
from faultline.inspector.reader import Reader
from faultline.inspector.throughput import Samples


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and leave; needs no terminal.")
@click.option(
    "--every",
    "pause_seconds",
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.pass_obj
def top(context: Context, once: bool, pause_seconds: float) -> None:
    """What waits, runs, fails and is at risk, live. Reads only; leave with Ctrl-C."""
    if not once and not sys.stdout.isatty():
        raise InvalidSettings("this is not a terminal", hint="faultline top --once")
    with context.connection():  # says what is wrong before the screen is taken
        pass
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_print_once(context) if once else _keep_looking(context, pause_seconds))


async def _print_once(context: Context) -> None:
    reader = Reader(context.database_url, sessions=1)
    try:
        console().print(frame(await _glance(reader, Samples())))
    finally:
        await reader.close()


async def _keep_looking(context: Context, pause_seconds: float) -> None:
    reader, samples = Reader(context.database_url, sessions=1), Samples()
    shown: RenderableType = "looking …"
    try:
        with Live(shown, console=console(), screen=True, auto_refresh=False) as live:
            while True:
                try:
                    shown = frame(await _glance(reader, samples))
                    live.update(shown, refresh=True)
                except FaultlineError as error:
                    live.update(away(shown, error), refresh=True)
                await asyncio.sleep(pause_seconds)
    finally:
        await reader.close()


async def _glance(reader: Reader, samples: Samples) -> Glance:
    async with reader.look() as look:
        found = await overview.survey(look)
        soonest = await look.read(leases.page(limit=AT_A_GLANCE))
    return Glance(found, samples.add(found.sample), soonest.leases)
