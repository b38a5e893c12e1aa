"""The command `worker`: runs jobs, in one process or in several supervised ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from faultline.cli.completion import complete_queues
from faultline.cli.context import Context
from faultline.cli.database_url_option import without_url
from faultline.cli.service_options import (
    MetricsOptions,
    health_file_option,
    measuring,
    metrics_options,
    retention_options,
)
from faultline.config import BY_SLOTS, DEFAULT_CONCURRENCY, Retention, WorkerSettings
from faultline.errors import InvalidSettings
from faultline.health.writer import health_file_writer
from faultline.metrics import Part
from faultline.payload import check_queue_name
from faultline.queue_shares import EVERY_QUEUE, QueueShare, parse_queues, refuse_ambiguous
from faultline.termination import Termination
from faultline.workers.reloading import Reloader, reporting_files
from faultline.workers.supervisor import Supervisor, SupervisorHealth
from faultline.workers.worker_process import WorkerProcess

DEFAULTS = WorkerSettings()


@click.command()
@click.option(
    "-q",
    "--queues",
    shell_complete=complete_queues,
    help="The queues to claim from, separated by commas; '*' for every other queue. If absent, the queues"
    " of your tasks, and `default`. `billing:5=3`: at most 5 jobs of billing at once, and 3 parts of the"
    " claims.",
)
@click.option(
    "-c",
    "--concurrency",
    type=int,
    help="How many jobs each process runs at once. If absent, the sum of the slots if each queue has some,"
    f" else {DEFAULT_CONCURRENCY}.",
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many processes to supervise.",
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
    help="How often an idle worker looks for due jobs without being notified;"
    " a fifth as often while a reconciler leads.",
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
@click.option(
    "--strict-priority",
    is_flag=True,
    help="Let every claim begin at the highest priority, so that lower ones may wait for ever.",
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
@click.option(
    "--reload/--no-reload",
    default=False,
    help="For development: start the worker again when a module that it has imported changes.",
)
@health_file_option
@click.option("--report-files", type=int, hidden=True)  # a pipe that the reloader reads
@click.option("--supervised-by", type=int, hidden=True)  # a pipe that the supervisor holds
@metrics_options
@retention_options
@click.pass_obj
def worker(
    context: Context,
    queues: str | None,
    concurrency: int | None,
    processes: int,
    lease_seconds: float,
    heartbeat_seconds: float,
    answer_seconds: float,
    stall_seconds: float,
    poll_seconds: float,
    drain_seconds: float,
    claim_ahead: int,
    strict_priority: bool,
    max_jobs: int,
    no_self_fencing: bool,
    no_reconciler: bool,
    reload: bool,
    health_file: Path | None,
    report_files: int | None,
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
            hint="faultline worker --app shop.jobs:app; or set FAULTLINE_APP, or app in [tool.faultline] of"
            " pyproject.toml",
        )
    shares = _queue_shares(queues)
    settings = WorkerSettings(
        queues=shares,
        concurrency=BY_SLOTS if concurrency is None else concurrency,
        lease_seconds=lease_seconds,
        heartbeat_seconds=heartbeat_seconds,
        answer_seconds=answer_seconds,
        stall_seconds=stall_seconds,
        poll_seconds=poll_seconds,
        drain_seconds=drain_seconds,
        claim_ahead=claim_ahead,
        strict_priority=strict_priority,
        max_jobs=max_jobs,
        self_fencing=not no_self_fencing,
    )
    if reload:
        if processes > 1:
            raise InvalidSettings(
                "--reload is for one process", hint="leave out --reload or --processes"
            )
        context.export_database_url()
        sys.exit(Reloader([*_single_process_command(), "--no-reload"]).run())
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
        reporting_files(report_files),
    ):
        if any(share.slots for share in shares.values()):
            context.app.import_tasks()
            tasks = context.app.tasks.values()
            refuse_ambiguous(shares, {task.name: task.settings.queue for task in tasks})
        process = WorkerProcess(
            context.app,
            settings,
            retention=None if no_reconciler else retention,
            health=health,
            supervised_by=supervised_by,
        )
        code = process.run(termination)
    sys.exit(code)


def _queue_shares(given: str | None) -> dict[str, QueueShare]:
    shares = {} if given is None else parse_queues(given)
    for name in shares:
        if name != EVERY_QUEUE:
            check_queue_name(name)
    return shares


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
