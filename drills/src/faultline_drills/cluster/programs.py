"""Runs pg_basebackup, pg_dump, pg_dumpall and psql as the server's account."""

from __future__ import annotations

import subprocess

from psycopg import conninfo

from faultline.embedded import find_binaries
from faultline.embedded.process import child_options, reachable_binaries
from faultline.errors import EmbeddedServerError

_LONGEST_SECONDS = 60.0
_NEEDED = ("pg_basebackup", "pg_dump", "pg_dumpall", "psql")


def missing_requirement() -> str | None:
    """The missing programs; None if all are installed."""
    binaries = find_binaries()
    missing = [name for name in _NEEDED if not (binaries / name).is_file()]
    if not missing:
        return None
    return f"{binaries} has no {', '.join(missing)}: install PostgreSQL's client programs"


def run_program(
    name: str, *arguments: str, url: str, version: str | None, reads: str | None = None
) -> str:
    """Run it; its output. The password is in its environment, hidden from `ps`."""
    parts = conninfo.conninfo_to_dict(url)
    password = str(parts.pop("password", ""))
    options = child_options()
    options["env"] = {**options["env"], "PGPASSWORD": password}
    del options["stdin"]
    program = str(reachable_binaries(find_binaries(version)) / name)
    ran = subprocess.run(
        [program, "--dbname", conninfo.make_conninfo("", **parts), *arguments],
        **options,
        input=reads or "",
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    if ran.returncode:
        raise EmbeddedServerError(f"{name} ended with {ran.returncode}: {ran.stderr.strip()}")
    return str(ran.stdout)
