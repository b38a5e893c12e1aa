"""Worker processes, and what Linux says of a process: its memory and the time it has used."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scaling.application import NAME
from faultline.errors import FaultlineError
from faultline.postgres.address import environment_with

ROOT = Path(__file__).parents[2]
_STOP_SECONDS = 10.0
_BYTES_PER_KIB, _BYTES_PER_MB = 1_024, 1_000_000


class NotMeasured(FaultlineError):
    """The measurement could not be made, so there is no figure."""

    code = "not_measured"


@dataclass(frozen=True)
class Memory:
    """In MB. `pss` divides what processes share among them; `peak` is the highest `rss` there ever was."""

    rss: float
    pss: float
    peak: float


def memory_of(pid: int) -> Memory:
    status = Path(f"/proc/{pid}/status").read_text()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return Memory(
        _megabytes("VmRSS", status), _megabytes("Pss", rollup), _megabytes("VmHWM", status)
    )


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time that these processes have used; those that have ended count as nothing."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def has_proc() -> bool:
    return Path("/proc/self/smaps_rollup").exists()


@contextmanager
def workers(url: str, count: int, *options: str, module: str = "faultline") -> Iterator[list[int]]:
    """`count` real worker processes inside the `with` block; their process ids."""
    program = [sys.executable, "-m", module]
    if module == "faultline":
        program += ["--app", NAME, "--log-format", "json", "worker"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(_start([*program, *options], url) for _ in range(count))
        yield [process.pid for process in started]
        ended = [process.returncode for process in started if process.poll() is not None]
        if ended:
            raise NotMeasured(f"{len(ended)} of {count} workers ended by themselves, with {ended}")
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            _reap(process)


def _start(command: Sequence[str], url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment_with(url),
        start_new_session=True,
    )


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)


def sleep_until(deadline: float, pause_seconds: float) -> bool:
    """Wait a little; False when the deadline has passed."""
    time.sleep(pause_seconds)
    return time.monotonic() < deadline


def _megabytes(name: str, text: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise NotMeasured(f"the kernel does not say {name}")
    return int(found[1]) * _BYTES_PER_KIB / _BYTES_PER_MB
