"""Which process is the server of a data directory, if any: what the postmaster wrote, checked."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PidFile:
    """What a postmaster writes about itself in its data directory, and leaves when killed."""

    pid: int
    port: int
    ready: bool

    @classmethod
    def read(cls, data_dir: Path) -> PidFile | None:
        try:
            lines = _path(data_dir).read_text().splitlines()
            return cls(int(lines[0]), int(lines[3]), "".join(lines[7:8]).strip() == "ready")
        except (OSError, IndexError, ValueError):  # absent, or half written
            return None


def is_postmaster(pid: int, data_dir: Path) -> bool:
    """Tells our server from a process that was given a dead server's pid. A zombie is neither."""
    program, _, options = command_line(pid).partition(" -D ")
    if Path(program).name not in ("postgres", "postmaster"):
        return False
    # A server that names no absolute directory may well be ours: never start a second one.
    return not options.startswith("/") or f"{options} ".startswith(f"{data_dir} ")


def command_line(pid: int) -> str:
    """Empty if there is no such process, or if only its exit code is left."""
    if not Path("/proc/self/cmdline").exists():  # macOS
        listing = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(listing, capture_output=True, text=True, timeout=10).stdout.strip()
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
        return os.fsdecode(words.replace(b"\0", b" "))
    except OSError:
        return ""


def disarm_reused_pid(data_dir: Path) -> None:
    """Let a server start whose last pid now belongs to a process that is not PostgreSQL.

    PostgreSQL takes any living process of its user for its rival, except its own parent. So the
    stale file is made to name us; its other lines stay, and with them PostgreSQL's check that no
    backend of the killed server still holds the shared memory.
    """
    seen = PidFile.read(data_dir)
    if seen and command_line(seen.pid) and not is_postmaster(seen.pid, data_dir):
        _, _, rest = _path(data_dir).read_text().partition("\n")
        _path(data_dir).write_text(f"{os.getpid()}\n{rest}")


def _path(data_dir: Path) -> Path:
    return data_dir / "postmaster.pid"
