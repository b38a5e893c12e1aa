"""The server and the database that a drill works in, removed afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from rich.console import Console

from faultline.cli.context import Context
from faultline.embedded import temporary_server
from faultline_drills.servers.scratch_database import scratch_database
from faultline_drills.subjects import Subject, install


@contextmanager
def cleanup_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that cleanup runs.

    Otherwise stopped workers, databases and servers would outlive a drill whose terminal was closed.
    """
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def drill_server(
    given_url: str | None,
    console: Console | None = None,
    *,
    settings: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The URL of the given server, else of an embedded one with `settings`."""
    with ExitStack() as stack:
        stack.enter_context(cleanup_on_signals())
        if given_url is not None:
            yield given_url
            return
        server = stack.enter_context(temporary_server(settings=settings))
        if console is not None:
            console.print(f"[dim]started an embedded PostgreSQL {server.version} for this[/]")
        yield server.url


@contextmanager
def drill_database(
    context: Context, console: Console | None, *, subject: Subject = Subject.FAULTLINE
) -> Iterator[str]:
    """The URL of a new database with the subject's schema, dropped afterwards."""
    with (
        drill_server(context.given_url, console) as server_url,
        scratch_database(server_url) as url,
    ):
        install(subject, url)
        yield url
