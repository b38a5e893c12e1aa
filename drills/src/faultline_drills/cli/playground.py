"""A database for a demo or a drill to play in, gone afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console

from faultline.cli.context import Context
from faultline.embedded import temporary_server
from faultline_drills.scratch import scratch_database
from faultline_drills.subjects import Subject, install


@contextmanager
def ends_cleanly() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, must leave nothing behind either: no worker that stands
    still, no database, no server."""
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
def playground(
    context: Context, console: Console | None, *, subject: Subject = Subject.FAULTLINE
) -> Iterator[str]:
    """A new database on the server that was given, else on one that is started for it."""
    with ExitStack() as stack:
        stack.enter_context(ends_cleanly())
        server = context.given_url
        if server is None:
            own = stack.enter_context(temporary_server())
            server = own.url
            if console is not None:
                console.print(f"[dim]started an embedded PostgreSQL {own.version} for this[/dim]")
        url = stack.enter_context(scratch_database(server))
        install(subject, url)
        yield url
