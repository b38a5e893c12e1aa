"""The command `health`: a line and an exit code for an orchestrator's probes.

An orchestrator runs it every few seconds beside a working process. This module therefore imports only
what it takes to read a small file or request one URL.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from faultline.health import health_file
from faultline.health.health_file import Report
from faultline.health.probe import (
    SILENT_SECONDS,
    STUCK_SECONDS,
    Limits,
    ProbeResult,
    is_live,
    is_ready,
    is_well,
)
from faultline.steady import steady_now

API_URL = "http://127.0.0.1:8000"
INSPECTOR_URL = "http://127.0.0.1:8001"


def _live_or_ready(default: str | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, says in (
            ("ready", "Check whether the process can take work."),
            ("live", "Check whether the process is stuck, so that it needs a restart."),
        ):
            note = "  [default]" if name == default else ""
            command = click.option(f"--{name}", "what", flag_value=name, help=says + note)(command)
        return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)

    return add


def _file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for add in (
        click.option(
            "--silent-seconds",
            default=SILENT_SECONDS,
            show_default=True,
            help="A process that has not written its file for this long is not alive.",
        ),
        click.option(
            "--stuck-seconds",
            default=STUCK_SECONDS,
            show_default=True,
            help="An event loop without progress for this long is stuck.",
        ),
        click.option(
            "--health-file",
            type=click.Path(path_type=Path),
            envvar="FAULTLINE_HEALTH_FILE",
            help="The --health-file of the process; FAULTLINE_HEALTH_FILE sets both.",
        ),
        _live_or_ready(None),
    ):
        command = add(command)
    return command


def _url_options(url: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                "--timeout",
                default=3.0,
                show_default=True,
                help="Seconds to wait for the response.",
            ),
            click.option("--url", default=url, show_default=True, help="The URL of the process."),
            _live_or_ready("ready"),
        ):
            command = option(command)
        return command

    return add


@click.group()
def health() -> None:
    """Check one process, for the probes of an orchestrator.

    It prints one line; the exit code is 0 if the process is healthy and 1 if not.
    """


@health.command()
@_file_options
def worker(
    what: str | None,
    health_file: Path | None,
    stuck_seconds: float,
    silent_seconds: float,
    as_json: bool,
) -> None:
    """Check a worker, or all processes of one `--processes`.

    A busy worker is healthy, a stuck one is not. Without --live or --ready the check also fails if no
    heartbeat succeeded for the length of a lease. A worker without an answer from the database is not
    ready, but live: a restart would not help.
    """
    limits = Limits(silent_seconds=silent_seconds, stuck_seconds=stuck_seconds)
    _print_result(as_json, _check_file(health_file, {"worker", "supervisor"}, what, limits))


@health.command()
@_file_options
def reconciler(
    what: str | None,
    health_file: Path | None,
    stuck_seconds: float,
    silent_seconds: float,
    as_json: bool,
) -> None:
    """Check a `faultline reconciler`."""
    limits = Limits(silent_seconds=silent_seconds, stuck_seconds=stuck_seconds)
    _print_result(as_json, _check_file(health_file, {"reconciler"}, what, limits))


@health.command()
@_url_options(API_URL)
def api(what: str | None, url: str, timeout: float, as_json: bool) -> None:
    """Check the HTTP API.

    It is ready if a job could be enqueued, and live if it sends any response.
    """
    _print_result(as_json, _check_url(url, "/" if what == "live" else "/ready", what, timeout))


@health.command()
@_url_options(INSPECTOR_URL)
def inspector(what: str | None, url: str, timeout: float, as_json: bool) -> None:
    """Check the inspector.

    It is ready if it can read the database, and live if it sends any response.
    """
    path = "/api/about" if what == "live" else "/api/leases?limit=1"
    _print_result(as_json, _check_url(url, path, what, timeout))


def _print_result(as_json: bool, verdict: ProbeResult) -> None:
    if as_json:
        click.echo(json.dumps({"ok": verdict.holds, "why": verdict.why}))
    else:
        click.echo(verdict.why)
    sys.exit(0 if verdict.holds else 1)


def _check_file(
    path: Path | None, kinds: set[str], what: str | None, limits: Limits
) -> ProbeResult:
    if path is None:
        raise click.UsageError(
            "no health file is given: use --health-file or FAULTLINE_HEALTH_FILE"
        )
    try:
        report = health_file.read(path)
    except (OSError, ValueError) as error:
        return ProbeResult(
            False, f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        )
    if report is None:
        return ProbeResult(
            False, f"there is no {path}: no process with this --health-file is running"
        )
    if report.kind not in kinds:
        return ProbeResult(False, f"{path} is the health file of a {report.kind}")
    judge = {"ready": is_ready, "live": is_live}.get(what or "", is_well)
    return judge(report, steady_now(), limits, lambda name: _read_beside(path, name))


def _read_beside(path: Path, name: str) -> Report | None:
    try:
        return health_file.read(path.with_name(name))
    except (OSError, ValueError):
        return None  # the same as a process that has not reported


def _check_url(url: str, path: str, what: str | None, timeout: float) -> ProbeResult:
    """Request the URL directly, without a proxy that the environment names."""
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"{url!r} is not http://HOST:PORT", param_hint="--url")
    by_scheme = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = by_scheme[parts.scheme](parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}{path}")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return ProbeResult(False, f"{url} does not answer: {error or type(error).__name__}")
    finally:
        connection.close()
    if what == "live":
        return ProbeResult(True, f"{url} answers")
    return ProbeResult(status == 200, f"{url}{path} answers {status}")
