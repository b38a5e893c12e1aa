"""Creates a server's data directory atomically, and removes it."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from faultline.embedded.account import can_enter, chown_to_server_account, make_directory
from faultline.embedded.process import POLL_SECONDS, child_options
from faultline.errors import EmbeddedServerError

PASSWORD_FILE = "faultline.password"  # noqa: S105 - a name, not a password


def create(data_dir: Path, binaries: Path, timeout_seconds: float) -> None:
    """Create the data directory under another name and rename it when it is complete."""
    parent = data_dir.parent
    make_directory(parent)
    if data_dir.exists() and any(data_dir.iterdir()):
        raise EmbeddedServerError(
            f"{data_dir} is neither empty nor a PostgreSQL data directory",
            hint="set FAULTLINE_DATA_DIR to a directory that Faultline may fill",
        )
    if not can_enter(parent):
        raise EmbeddedServerError(
            f"PostgreSQL does not run as root, and the account nobody cannot enter {parent}",
            hint="set FAULTLINE_DATA_DIR to a directory that all users can enter, or do not run as root",
        )
    with tempfile.TemporaryDirectory(dir=parent, prefix=".faultline-initdb-") as scratch:
        staging, password = Path(scratch) / "data", Path(scratch) / "password"
        staging.mkdir(mode=0o700)
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24))
        chown_to_server_account(Path(scratch), staging, password)
        command = [
            *(f"{binaries}/initdb", "--no-sync", "--locale=C", "-E", "UTF8", "-U", "postgres"),
            *("--auth=scram-sha-256", f"--pwfile={password}", "-D", str(staging)),
        ]
        try:
            subprocess.run(
                command,
                **child_options(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_seconds,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
            output = (problem.output or b"").decode(errors="replace").strip()
            raise EmbeddedServerError(
                f"{data_dir} could not be created: {problem}\n{output}\n",
                hint="set DATABASE_URL to use another PostgreSQL",
            ) from None
        password.rename(staging / PASSWORD_FILE)
        staging.rename(data_dir)


def remove(data_dir: Path, timeout_seconds: float) -> None:
    """Delete the directory; retry while backends of a killed server still write to it."""
    deadline = time.monotonic() + timeout_seconds
    while data_dir.exists():
        try:
            shutil.rmtree(data_dir)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
