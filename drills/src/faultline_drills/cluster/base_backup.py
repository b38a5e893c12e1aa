"""Base backups: copies of a running server's data directory."""

from __future__ import annotations

from pathlib import Path

from faultline.embedded.process import chown_to_server_account
from faultline.embedded.server import Server
from faultline_drills.cluster.programs import run_program

STANDBY = "standby.signal"
RECOVERY = "recovery.signal"


def base_backup(source: Server, into: Path) -> None:
    """Copy the data directory with the WAL that makes it consistent."""
    into.mkdir(mode=0o700)
    chown_to_server_account(into)
    run_program(
        "pg_basebackup",
        *("--pgdata", str(into), "--checkpoint=fast", "--wal-method=stream"),
        *("--no-sync", "--no-manifest"),
        url=source.url,
        version=source.version,
    )


def start_as(signal_name: str, data_dir: Path, **settings: str) -> None:
    """Set the mode of its next start (standby, recovery), and the settings for that."""
    signal_file = data_dir / signal_name
    signal_file.touch(mode=0o600)
    chown_to_server_account(signal_file)
    with (data_dir / "postgresql.auto.conf").open("a") as out:
        for name, value in settings.items():
            quoted = value.replace("'", "''")
            out.write(f"{name} = '{quoted}'\n")
