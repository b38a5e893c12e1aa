"""Starts worker processes, and reads their memory and processor time from /proc."""

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
from faultline.postgres.url import environment_with

ROOT = Path(__file__).parents[2]
_STOP_SECONDS = 10.0
_BYTES_PER_KIB, _BYTES_PER_MB = 1_024, 1_000_000


class NotMeasured(FaultlineError):
    """The measurement failed, so there is no figure."""

    code = "not_measured"


@dataclass(frozen=True)
class Memory:
    """In MB. `pss` divides shared memory among processes; `peak` is the highest `rss`."""

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
    """Return the user and system time of these processes; ended ones count as 0."""
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
    """Run `count` worker processes during the block; yield their process ids."""
    program = [sys.executable, "-m", module]
    if module == "faultline":
        program += ["--app", NAME, "--log-format", "json", "worker"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(_start([*program, *options], url) for _ in range(count))
        yield [process.pid for process in started]
        ended = [process.returncode for process in started if process.poll() is not None]
        if ended:
            raise NotMeasured(
                f"{len(ended)} of {count} workers ended early, with exit codes {ended}"
            )
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            _wait_for_exit(process)


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


def _wait_for_exit(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)


def sleep_until(deadline: float, pause_seconds: float) -> bool:
    """Sleep for `pause_seconds`; return False if the deadline has passed."""
    time.sleep(pause_seconds)
    return time.monotonic() < deadline


def _megabytes(name: str, text: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise NotMeasured(f"/proc has no value for {name}")
    return int(found[1]) * _BYTES_PER_KIB / _BYTES_PER_MB
