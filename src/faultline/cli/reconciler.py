"""The command `reconciler`: requeues the jobs of dead workers until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import click

from faultline.cli.context import Context
from faultline.cli.service_options import (
    MetricsOptions,
    health_file_option,
    measuring,
    metrics_options,
    retention_options,
)
from faultline.config import Retention
from faultline.health.writer import HealthFileWriter, health_file_writer
from faultline.metrics import Part
from faultline.postgres.migrate import require_fence, require_schema
from faultline.reconciler import Reconciler
from faultline.termination import Termination
from faultline.tracing.export import exporting


@click.command()
@health_file_option
@metrics_options
@retention_options
@click.pass_obj
def reconciler(
    context: Context, health_file: Path | None, metrics: MetricsOptions, retention: Retention
) -> None:
    """Requeue the jobs of dead workers until SIGTERM or SIGINT.

    Every worker does this too, unless it has --no-reconciler. Any number of reconcilers may run.
    """
    with Termination() as termination, health_file_writer(health_file, "reconciler") as health:
        require_schema(context.database_url, require_fence)
        with measuring(metrics, Part.RECONCILER), exporting("reconciler"):
            service = Reconciler(context.database_url, retention)
            termination.run(lambda: _run_reconciler(service, health, termination))


async def _run_reconciler(
    service: Reconciler, health: HealthFileWriter | None, termination: Termination
) -> None:
    if health is not None:
        health.follow(service.vitals)
    task = asyncio.create_task(service.run())
    with termination.listening(task.cancel), contextlib.suppress(asyncio.CancelledError):
        await task
