"""The command `worker`: runs jobs, in one process or in several supervised ones."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import click

from faultline.cli.context import Context, require_schema
from faultline.cli.database_url_option import without_url
from faultline.cli.service_options import (
    MetricsOptions,
    health_file_option,
    measuring,
    metrics_options,
    retention_options,
)
from faultline.config import Retention, WorkerSettings
from faultline.errors import InvalidSettings
from faultline.events import Event, emit
from faultline.health.writer import HealthFileWriter, health_file_writer
from faultline.metrics import Part
from faultline.payload import check_queue_name
from faultline.postgres.migrate import require_fence
from faultline.reconciler import Reconciler
from faultline.termination import Termination
from faultline.tracing.export import exporting, flush
from faultline.workers import Worker, stacks
from faultline.workers.supervisor import DRAINED, DRAINED_STUCK, Supervisor, SupervisorHealth

DEFAULTS = WorkerSettings()
_CLOSING_SECONDS = 5.0


@click.command()
@click.option(
    "-q",
    "--queues",
    default="default",
    show_default=True,
    help="The queues to claim from, separated by commas.",
)
@click.option(
    "-c",
    "--concurrency",
    default=DEFAULTS.concurrency,
    show_default=True,
    help="How many jobs each process runs at once.",
)
@click.option(
    "-p", "--processes", default=1, show_default=True, help="How many processes to supervise."
)
@click.option(
    "--lease-seconds",
    default=DEFAULTS.lease_seconds,
    show_default=True,
    help="How long a claim is valid unless a heartbeat renews it.",
)
@click.option(
    "--heartbeat-seconds",
    default=0.0,
    help="How often leases are renewed; 0 for a quarter of the lease.",
)
@click.option(
    "--answer-seconds",
    default=0.0,
    help="Close a session that PostgreSQL has not answered for this long; 0 for half of the lease.",
)
@click.option(
    "--stall-seconds",
    default=0.0,
    help="Treat an event loop that makes no progress for this long as blocked; 0 for a third of the lease.",
)
@click.option(
    "--poll-seconds",
    default=DEFAULTS.poll_seconds,
    show_default=True,
    help="How often an idle worker looks for due jobs without being notified.",
)
@click.option(
    "--drain-seconds",
    default=DEFAULTS.drain_seconds,
    show_default=True,
    help="How long running jobs may take to finish after SIGTERM before they are released.",
)
@click.option(
    "--claim-ahead",
    default=DEFAULTS.claim_ahead,
    show_default=True,
    help="How many short jobs may be claimed before a slot is free; 0 for none.",
)
@click.option("--max-jobs", default=0, help="Stop after this many attempts; 0 for no limit.")
@click.option(
    "--no-self-fencing",
    is_flag=True,
    help="For drills: run a late attempt on until PostgreSQL refuses it.",
)
@click.option(
    "--no-reconciler", is_flag=True, help="Run no reconciler in this worker; another process must."
)
@health_file_option
@click.option("--supervised-by", type=int, hidden=True)  # a pipe that the supervisor holds
@metrics_options
@retention_options
@click.pass_obj
def worker(
    context: Context,
    queues: str,
    concurrency: int,
    processes: int,
    lease_seconds: float,
    heartbeat_seconds: float,
    answer_seconds: float,
    stall_seconds: float,
    poll_seconds: float,
    drain_seconds: float,
    claim_ahead: int,
    max_jobs: int,
    no_self_fencing: bool,
    no_reconciler: bool,
    health_file: Path | None,
    supervised_by: int | None,
    metrics: MetricsOptions,
    retention: Retention,
) -> None:
    """Run jobs until SIGTERM, SIGINT or `faultline drain`.

    Each of them lets running jobs finish within --drain-seconds. A second signal releases them at once.
    """
    if context.app_path is None:
        raise InvalidSettings(
            "a worker needs your application: --app is missing",
            hint="faultline --app shop.jobs:app worker",
        )
    names = [check_queue_name(name.strip()) for name in queues.split(",") if name.strip()]
    settings = WorkerSettings(
        queues=tuple(dict.fromkeys(names)),
        concurrency=concurrency,
        lease_seconds=lease_seconds,
        heartbeat_seconds=heartbeat_seconds,
        answer_seconds=answer_seconds,
        stall_seconds=stall_seconds,
        poll_seconds=poll_seconds,
        drain_seconds=drain_seconds,
        claim_ahead=claim_ahead,
        max_jobs=max_jobs,
        self_fencing=not no_self_fencing,
    )
    parts = [Part.WORKER, Part.PRODUCER, *([] if no_reconciler else [Part.RECONCILER])]
    if processes > 1:
        context.export_database_url()
        command = _single_process_command()
        with Termination():
            code = _supervise(
                command, count=processes, options=metrics, parts=parts, health_file=health_file
            )
        sys.exit(code)
    with (
        Termination() as termination,
        health_file_writer(health_file, "worker") as health,
        measuring(metrics, *parts),
    ):
        kept = None if no_reconciler else retention
        code = _work(context, settings, kept, health, supervised_by, termination)
    sys.exit(code)


def _work(
    context: Context,
    settings: WorkerSettings,
    retention: Retention | None,
    health: HealthFileWriter | None,
    supervised_by: int | None,
    termination: Termination,
) -> int:
    """Run a worker in this process, with a reconciler unless `retention` is None."""
    app = context.app  # imported before tracing starts: it may configure tracing itself
    url = app.database_url  # the app may set another URL than the environment's
    companions = [] if retention is None else [Reconciler(url, retention).run]
    require_schema(url, require_fence)

    def end_process() -> None:
        _end_process(health, is_drained=service.drain_was_requested and supervised_by is not None)

    service = Worker(app, settings, companions=companions, end_process=end_process)
    with exporting("worker"):
        return termination.run(
            lambda: _run_worker(service, health, supervised_by, termination),
            loop_factory=_fastest_loop(),
        )


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop if it is installed (`pip install faultline-queue[fast]`), else None."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
        "uvloop"
    ).new_event_loop
    return factory


async def _run_worker(
    worker: Worker,
    health: HealthFileWriter | None,
    supervised_by: int | None,
    termination: Termination,
) -> int:
    """Run the worker until it stops; returns the exit code."""
    with termination.listening(worker.stop, on_signal=worker.stop_requested):
        if supervised_by is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(supervised_by, _orphaned, worker, supervised_by)
        if health is not None:
            health.follow(worker.vitals)
        try:
            is_clean = await worker.run()
        except Exception as error:
            if not worker.is_stuck:
                raise
            emit(Event.DEGRADED, reason=f"an error ends the worker: {' '.join(str(error).split())}")
            is_clean = False
        is_drained = worker.drain_was_requested and supervised_by is not None
        if not is_clean:
            _end_process(health, is_drained=is_drained)
        _bound_closing(health, is_drained=is_drained)
    return DRAINED if is_drained else 0


def _end_process(health: HealthFileWriter | None, *, is_drained: bool) -> NoReturn:
    """End the process with exit code 1 although handlers are still running.

    A normal exit would wait for them for ever: Python joins their threads, and asyncio waits for their
    tasks when it closes the loop.
    """
    if health is not None:
        health.stop()
    flush()
    sys.stderr.flush()
    os._exit(DRAINED_STUCK if is_drained else 1)


def _bound_closing(health: HealthFileWriter | None, *, is_drained: bool) -> None:
    """Give threads that handlers left behind _CLOSING_SECONDS, then end the process."""

    def watch() -> None:
        time.sleep(_CLOSING_SECONDS)
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.main_thread():
                stack = stacks.of_thread(thread.ident)
                emit(
                    Event.DEGRADED,
                    reason=f"the thread {thread.name} does not end: the process exits without it",
                    frame=None if stack is None else stack.frame,
                    stack=None if stack is None else stack.text,
                )
        _end_process(health, is_drained=is_drained)

    threading.Thread(target=watch, name="faultline-closing", daemon=True).start()


def _orphaned(worker: Worker, supervised_by: int) -> None:
    """Stop the worker: the supervisor's end of the pipe was closed."""
    asyncio.get_running_loop().remove_reader(supervised_by)
    emit(Event.DEGRADED, reason="the supervisor is gone: draining")
    worker.stop()


def _single_process_command() -> list[str]:
    """This command line with --processes 1 at its end, which overrides an earlier one.

    The database URL is passed by environment, because every account can read a command line.
    """
    return [sys.executable, "-m", "faultline", *without_url(sys.argv[1:]), "--processes", "1"]


def _supervise(
    command: Sequence[str],
    *,
    count: int,
    options: MetricsOptions,
    parts: Sequence[Part],
    health_file: Path | None = None,
) -> int:
    """Run `count` processes and serve their metrics; returns the exit code."""
    health = None if health_file is None else SupervisorHealth(health_file)

    def health_of(slot: int) -> Sequence[str]:
        return () if health is None else ("--health-file", str(health.file_of(slot)))

    if not options.port:
        return Supervisor(command, count=count, options=health_of, health=health).run()
    from faultline.metrics.endpoint import Endpoint, read_token
    from faultline.metrics.series import ProcessFiles

    with ProcessFiles(count) as slots:
        registry = slots.registry(*parts)
        token = read_token(options.token_file)
        with Endpoint(registry, host=options.host, port=options.port, token=token):
            return Supervisor(
                [*command, "--metrics-port", "0"],
                count=count,
                options=lambda slot: (
                    *health_of(slot),
                    "--metrics-files",
                    str(slots.files_of(slot)),
                ),
                on_end=slots.free,
                health=health,
            ).run()
