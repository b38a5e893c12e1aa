"""Starts one `faultline` process, reads its events, and ends it with its children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultline.postgres.url import environment_with

Event = dict[str, Any]
EventCallback = Callable[[str, str, Event], None]  # process name, event name, its fields

_KILL_SECONDS = 60.0  # for the kernel to remove a killed process on a busy machine


class ObservedProcess:
    """One `faultline` process, a worker by default, whose JSON events are read."""

    def __init__(
        self,
        name: str,
        *,
        app: str,
        url: str,
        options: Sequence[str] = (),
        command: str = "worker",
        environment: Mapping[str, str] | None = None,
        working_directory: Path | None = None,
        on_event: EventCallback = lambda name, event, fields: None,
        on_end: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.name = name
        self.events: list[Event] = []
        self.stray_lines: list[str] = []  # output that is not a JSON event
        self._on_event, self._on_end = on_event, on_end
        self._changed = threading.Condition()
        program = [sys.executable, "-m", "faultline", "--app", app, "--log-format", "json"]
        self._process = subprocess.Popen(
            [*program, "--verbose", command, *options],
            cwd=working_directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the caller's own stdout may carry JSON
            stderr=subprocess.PIPE,
            text=True,
            env={**environment_with(url), **(environment or {})},
            start_new_session=True,  # processes that its handlers fork are in its group
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while the process runs."""
        return self._process.poll()

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has stopped the process with all its threads."""
        look_only = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.pid, look_only) is not None
        except ChildProcessError:
            return False  # it has ended

    # ── events ───────────────────────────────────────────────────────────────────────────────────

    def events_named(self, name: str, **fields: Any) -> list[Event]:
        """The events of that name that have these fields, oldest first."""
        wanted = {"event": name, **{key: _as_json(value) for key, value in fields.items()}}
        return [event for event in tuple(self.events) if wanted.items() <= event.items()]

    def has_event(
        self, name: str, *, timeout_seconds: float, times: int = 1, **fields: Any
    ) -> bool:
        """Wait for the `times`-th such event; False at the timeout or the process's end."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while len(self.events_named(name, **fields)) < times:
                if not self._reader.is_alive() or time.monotonic() > deadline:
                    return len(self.events_named(name, **fields)) >= times
                self._changed.wait(0.1)
        return True

    def recent_output(self) -> str:
        """Whether the process runs, and its latest events and lines, for an error message."""
        code = self.exit_code
        state = "it is running" if code is None else f"it ended with {code}"
        lines = [json.dumps(event) for event in self.events[-15:]] + self.stray_lines[-30:]
        return "\n".join([f"{self.name}: {state}; its latest output:", *lines])

    def forget_old_output(self, keep: int) -> None:
        """Keep only the latest events and lines, to bound the memory of a long run."""
        del self.events[: max(0, len(self.events) - keep)]
        del self.stray_lines[: max(0, len(self.stray_lines) - keep)]

    def _read(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - it was asked for
        for line in self._process.stderr:
            try:
                event = dict(json.loads(line))
                name = event["event"]
            except (ValueError, KeyError, TypeError):
                self.stray_lines.append(line.rstrip())
                continue
            omitted = ("event", "at", "worker")
            fields = {key: value for key, value in event.items() if key not in omitted}
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
            self._on_event(self.name, name, fields)
        self._on_end(self.name)

    # ── signals ──────────────────────────────────────────────────────────────────────────────────

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def terminate(self) -> None:
        """SIGTERM: a worker drains and ends."""
        self.send(signal.SIGTERM)

    def stop(self) -> None:
        """SIGSTOP: every thread stands still."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.send(signal.SIGKILL)
        self._process.wait(_KILL_SECONDS)

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end; the exit code. Its whole output has been read by then."""
        code = self._process.wait(timeout_seconds)
        self._reader.join(timeout_seconds)
        return code

    def end(self) -> None:
        """Kill the process in whatever state it is, with its group and supervised workers."""
        for pid in (self.pid, *self._supervised_workers()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # each leads a process group; ends stopped ones too
        self._process.wait(_KILL_SECONDS)
        self._reader.join(_KILL_SECONDS)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _supervised_workers(self) -> set[int]:
        """Process ids of a supervisor's workers, including those that are still starting."""
        if self.is_alive:  # a stopped supervisor starts no further worker
            self.stop()
        started = [str(event.get("worker", "")) for event in self.events_named("worker_started")]
        pids = {int(worker.split("-")[-2]) for worker in started if worker.count("-") > 1}
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
            pids |= {int(pid) for pid in listed.split()}
        return {pid for pid in pids if pid != self.pid and _leads_a_group(pid)}


def _as_json(value: Any) -> Any:
    return value if isinstance(value, int | float | str | list | None) else str(value)


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
