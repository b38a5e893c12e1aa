"""Refuses to start what needs POSIX processes and signals on Windows."""

from __future__ import annotations

import sys

from faultline.errors import UnsupportedSystem


def require_posix(what: str, *, hint: str) -> None:
    """Raise UnsupportedSystem on Windows, where `what` was never run."""
    if sys.platform == "win32":
        raise UnsupportedSystem(f"{what} on Linux and macOS, not on Windows", hint=hint)


def require_posix_for_embedded_server() -> None:
    require_posix(
        "the embedded server runs", hint="set DATABASE_URL to a PostgreSQL that runs elsewhere"
    )


def require_posix_for_services() -> None:
    require_posix(
        "workers, reconcilers, the API and the inspector run",
        hint="run it in WSL 2 or in a container; programs on Windows can enqueue jobs",
    )
