"""Restarts a worker process when its code changes, for development.

The worker's process reports which files it has imported, by a pipe. The parent polls their modification
times: it needs no library for that, and hundreds of files cost a millisecond. After a change it sends
SIGTERM, waits until the worker has drained, and starts a new one. A worker that ends by an error, such as a
syntax error, is started again after the next change.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import site
import subprocess
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from faultline.events import Event, emit
from faultline.workers.supervisor import DRAINED, exit_code_of

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOOK_SECONDS = 0.3
_SETTLE_SECONDS = 0.1  # an editor may write a file in several steps
_REPORT_SECONDS = 0.5
_MAX_FILES = 5_000
_READ_BYTES = 65_536
_SHOWN_FILES = 5


class Stamp(NamedTuple):
    modified_ns: int
    size: int


class Watched:
    """The files of a process, and how they were when they were first seen."""

    def __init__(self, started_at: float) -> None:
        self._started_ns = int(started_at * 1e9)
        self._stamps: dict[str, Stamp | None] = {}
        self._folders: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._stamps)

    def update(self, files: Iterable[str], folders: Iterable[str]) -> None:
        """Add files; one that was written while the process started counts as changed."""
        for file in files:
            stamp = _stamp(file)
            if stamp is not None and self._started_ns < stamp.modified_ns <= time.time_ns():
                stamp = None
            self._stamps.setdefault(file, stamp)
        for folder in set(folders) - self._folders:
            self._folders.add(folder)
            for file in _sources(folder):
                self._stamps.setdefault(file, _stamp(file))

    def changes(self) -> list[str]:
        """Files that were written, removed or added to the folders of packages."""
        present = {file for folder in self._folders for file in _sources(folder)}
        changed = [file for file, stamp in self._stamps.items() if _stamp(file) != stamp]
        return sorted([*changed, *(present - self._stamps.keys())])


class Reloader:
    """Runs `command` until SIGTERM or SIGINT, and again after each change of its code."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        try:
            while True:
                with self._started() as (child, reports):
                    code = self._watch(child, reports)
                if code is not None:
                    return code
        finally:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    def _watch(self, child: subprocess.Popen[bytes], reports: Reports) -> int | None:
        """Watch until the process must be started again (None) or all is over (its code)."""
        has_ended = False
        while not (changes := reports.read().changes()) or self._stopping:
            if child.poll() is not None:
                reports.read()
                code = exit_code_of(child.returncode)
                if self._stopping or child.returncode in (0, DRAINED) or not reports.watched:
                    return code
                if not has_ended:
                    has_ended = True
                    reason = f"the worker ended with exit code {code}"
                    emit(Event.DEGRADED, reason=f"{reason}: it starts again when its code changes")
            time.sleep(_LOOK_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        emit(Event.CODE_CHANGED, files=changes[:_SHOWN_FILES])
        if not has_ended:
            child.send_signal(signal.SIGTERM)
            child.wait()
        return exit_code_of(child.returncode) if self._stopping else None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    @contextlib.contextmanager
    def _started(self) -> Iterator[tuple[subprocess.Popen[bytes], Reports]]:
        read_end, write_end = os.pipe()
        alive_end, own_end = os.pipe()  # closes when this process ends: the worker drains then
        started_at = time.time()
        command = [
            *self._command,
            *("--report-files", str(write_end)),
            *("--supervised-by", str(alive_end)),
        ]
        try:
            # A session of its own: Ctrl-C in the terminal reaches this process only.
            self._child = child = subprocess.Popen(
                command, start_new_session=True, pass_fds=(write_end, alive_end)
            )
            os.close(write_end)
            write_end = -1
            if self._stopping:  # the signal arrived while the process was starting
                child.send_signal(signal.SIGTERM)
            yield child, Reports(read_end, Watched(started_at))
        finally:
            for end in (read_end, write_end, alive_end, own_end):
                with contextlib.suppress(OSError):
                    os.close(end)


class Reports:
    """Reads the reports of the worker's process, and adds their files to `watched`."""

    def __init__(self, pipe: int, watched: Watched) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._text = b""
        self.watched = watched

    def read(self) -> Watched:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, _READ_BYTES):
                self._text += data
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            report = json.loads(line)
            self.watched.update(report["files"], report["folders"])
        return self.watched


# ── in the worker's process ──────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def reporting_files(pipe: int | None) -> Iterator[None]:
    """Report the files that this process imports, and those of an error that ends it."""
    if pipe is None:
        yield
        return
    reporter = FileReporter(pipe)
    threading.Thread(target=reporter.run, name="faultline-reload", daemon=True).start()
    try:
        yield
    except Exception as error:
        reporter.report(_files_of(error))
        raise


class FileReporter:
    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def run(self) -> None:
        while True:
            self.report()
            time.sleep(_REPORT_SECONDS)

    def report(self, more: Iterable[str] = ()) -> None:
        """Write the files that were not reported yet; packages with their folders."""
        files, folders = _imported()
        with self._lock:
            new = sorted({*files, *filter(_is_users, more)} - self._reported)[:_MAX_FILES]
            if new:
                self._reported.update(new)
                line = json.dumps({"files": new, "folders": sorted(folders)}) + "\n"
                with contextlib.suppress(OSError):  # the parent has ended
                    _write_all(self._pipe, line.encode())


def _imported() -> tuple[set[str], set[str]]:
    files: set[str] = set()
    folders: set[str] = set()
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not _is_users(file):
            continue
        files.add(file)
        if file.endswith("__init__.py"):
            folders.add(str(Path(file).parent))
    return files, folders


_INSTALLED = tuple(
    f"{Path(folder).resolve()}{os.sep}"
    for folder in {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        str(Path(__file__).parents[1]),  # Faultline itself, in a checkout
    }
)


def _is_users(file: str) -> bool:
    """Whether a file is neither of Python nor of an installed distribution."""
    return Path(file).is_absolute() and not str(Path(file).resolve()).startswith(_INSTALLED)


def _files_of(error: BaseException) -> set[str]:
    """The files that an error and its causes name."""
    files: set[str] = set()
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        files.update(frame.filename for frame in traceback.extract_tb(cause.__traceback__))
        if isinstance(cause, SyntaxError) and cause.filename:
            files.add(cause.filename)
        cause = cause.__cause__ or cause.__context__
    return files


def _write_all(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def _sources(folder: str) -> set[str]:
    found = Path(folder)
    return {str(path) for pattern in ("*.py", "*/__init__.py") for path in found.glob(pattern)}


def _stamp(file: str) -> Stamp | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size)
