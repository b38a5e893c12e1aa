"""Finds the server process of a data directory by its postmaster.pid."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PidFile:
    """The postmaster.pid of a data directory; a killed server leaves it behind."""

    pid: int
    port: int
    ready: bool

    @classmethod
    def read(cls, data_dir: Path) -> PidFile | None:
        try:
            lines = _path(data_dir).read_text().splitlines()
            return cls(int(lines[0]), int(lines[3]), "".join(lines[7:8]).strip() == "ready")
        except (OSError, IndexError, ValueError):  # missing or incomplete
            return None


def is_postmaster(pid: int, data_dir: Path) -> bool:
    """Tell whether the process is this directory's server; the pid may be reused.

    Also false for a zombie process.
    """
    program, _, options = command_line(pid).partition(" -D ")
    if Path(program).name not in ("postgres", "postmaster"):
        return False
    # A server without an absolute directory may be this one: never start a second one.
    return not options.startswith("/") or f"{options} ".startswith(f"{data_dir} ")


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if it does not exist or is a zombie."""
    if not Path("/proc/self/cmdline").exists():  # macOS
        listing = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(listing, capture_output=True, text=True, timeout=10).stdout.strip()
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
        return os.fsdecode(words.replace(b"\0", b" "))
    except OSError:
        return ""


def replace_reused_pid(data_dir: Path) -> None:
    """Let a server start although another program has its old pid now.

    PostgreSQL refuses to start if the pid in the old file is a running process of its user, unless that is
    its parent. So this process's pid is written into the file. The other lines stay, and with them
    PostgreSQL's check that no backend of the killed server still uses the shared memory.
    """
    seen = PidFile.read(data_dir)
    if seen and command_line(seen.pid) and not is_postmaster(seen.pid, data_dir):
        _, _, rest = _path(data_dir).read_text().partition("\n")
        _path(data_dir).write_text(f"{os.getpid()}\n{rest}")


def _path(data_dir: Path) -> Path:
    return data_dir / "postmaster.pid"
