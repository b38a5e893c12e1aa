"""The options --metrics-…, --health-file and --keep-…-days that commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from faultline.config import Retention
from faultline.metrics import Part, switch_on

Command = Callable[..., None]


class MetricsOptions(NamedTuple):
    port: int  # 0: metrics are off
    host: str
    files: Path | None  # where a supervised worker counts; its supervisor serves the metrics
    token_file: Path | None = None


def metrics_options(command: Command) -> Command:
    """Add the options for metrics; the command gets their values as `metrics`."""

    @functools.wraps(command)
    def with_metrics(
        *args: Any,
        metrics_port: int,
        metrics_host: str,
        metrics_files: Path | None,
        metrics_token_file: Path | None,
        **rest: Any,
    ) -> None:
        options = MetricsOptions(metrics_port, metrics_host, metrics_files, metrics_token_file)
        command(*args, metrics=options, **rest)

    for add in (
        click.option("--metrics-files", type=click.Path(path_type=Path), hidden=True),
        click.option(
            "--metrics-token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="FAULTLINE_METRICS_TOKEN_FILE",
            help="A file with the bearer token that scrapers must send. FAULTLINE_METRICS_TOKEN can hold the"
            " token itself.",
        ),
        click.option(
            "--metrics-host",
            default="127.0.0.1",
            show_default=True,
            help="The address to serve metrics on.",
        ),
        click.option(
            "--metrics-port",
            default=0,
            show_default=True,
            type=click.IntRange(0, 65535),
            help="Serve Prometheus metrics on this port; 0 turns them off.",
        ),
    ):
        with_metrics = add(with_metrics)
    return with_metrics


def health_file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--health-file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="FAULTLINE_HEALTH_FILE",
        help="Keep this file up to date for `faultline health`.",
    )(command)


@contextmanager
def measuring(options: MetricsOptions, *parts: Part) -> Iterator[None]:
    """Count metrics and serve them, if metrics are enabled."""
    if options.files is not None:
        switch_on(*parts, files=options.files)
    elif options.port:
        from faultline.metrics.endpoint import Endpoint, read_token

        token = read_token(options.token_file)
        registry = switch_on(*parts).registry
        with Endpoint(registry, host=options.host, port=options.port, token=token):
            yield
        return
    yield


_RETENTION = Retention()


def retention_options(command: Command) -> Command:
    """Add the options for retention; the command gets their values as `retention`."""

    @functools.wraps(command)
    def with_retention(
        *args: Any,
        keep_succeeded_days: float,
        keep_failed_days: float,
        keep_ledger_days: float,
        keep_audit_days: float,
        **rest: Any,
    ) -> None:
        retention = Retention(
            succeeded_days=keep_succeeded_days,
            failed_days=keep_failed_days,
            ledger_days=keep_ledger_days,
            audit_days=keep_audit_days,
        )
        command(*args, retention=retention, **rest)

    for name, days, records in (
        ("audit", _RETENTION.audit_days, "entries of the audit log"),
        ("ledger", _RETENTION.ledger_days, "entries of the ledger"),
        ("failed", _RETENTION.failed_days, "failed jobs"),
        ("succeeded", _RETENTION.succeeded_days, "succeeded jobs"),
    ):
        add = click.option(
            f"--keep-{name}-days",
            default=days,
            show_default=True,
            envvar=f"FAULTLINE_KEEP_{name.upper()}_DAYS",
            help=f"How long to keep {records}; 0 keeps them for ever.",
        )
        with_retention = add(with_retention)
    return with_retention
