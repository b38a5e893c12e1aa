"""A database for a demo or a drill to play in, gone afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console

from faultline.cli.context import Context
from faultline.drills.scratch import scratch_database
from faultline.drills.subjects import Subject, install
from faultline.embedded import temporary_server


@contextmanager
def playground(
    context: Context, console: Console | None, *, subject: Subject = Subject.FAULTLINE
) -> Iterator[str]:
    """A new database on the server that was given, else on one that is started for it."""
    with ExitStack() as stack:
        # SIGTERM too must leave nothing behind: no worker that stands still, no database, no server.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        server = context.given_url
        if server is None:
            own = stack.enter_context(temporary_server())
            server = own.url
            if console is not None:
                console.print(f"[dim]started an embedded PostgreSQL {own.version} for this[/dim]")
        url = stack.enter_context(scratch_database(server))
        install(subject, url)
        yield url
