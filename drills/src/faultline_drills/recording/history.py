"""The history of a drill: the operations of each process, with their outcome.

An operation ends `ok` (it happened), `fail` (it did not) or `info` (unknown: the process was killed, or
the answer was lost). The checker compares the history with what the database holds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Phase(StrEnum):
    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Verb(StrEnum):
    SUBMIT = "submit"  # a producer enqueues
    CLAIM = "claim"  # a worker claims a job, under a token
    ATTEMPT = "attempt"  # a worker runs the job and tries to commit it under that token
    CANCEL = "cancel"
    RETRY = "retry"
    RECONCILE = "reconcile"  # a reconciler requeues a job
    FAULT = "fault"  # an injected fault; not an operation, and not judged


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    at: float  # seconds since the drill began, by the monotonic clock of the recording process
    process: str
    phase: Phase
    verb: Verb
    operation: int  # the same for the invocation and its end
    job: str | None = None
    token: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """An invocation together with its end."""

    process: str
    verb: Verb
    job: str | None
    token: int | None
    outcome: Phase  # ok, fail or info
    began: float
    ended: float | None
    detail: Mapping[str, Any]


class History:
    """Entries in the order of recording; thread-safe."""

    def __init__(self, entries: Iterable[HistoryEntry] = ()) -> None:
        self._entries: list[HistoryEntry] = list(entries)
        self._open: dict[int, HistoryEntry] = {}
        self._next = 1
        self._began = time.monotonic()
        self._lock = threading.Lock()

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        with self._lock:
            return tuple(self._entries)

    def now(self) -> float:
        return time.monotonic() - self._began

    # ── recording ────────────────────────────────────────────────────────────────────────────────

    def invoke(
        self,
        process: str,
        verb: Verb,
        *,
        job: str | None = None,
        token: int | None = None,
        **detail: Any,
    ) -> int:
        with self._lock:
            number, self._next = self._next, self._next + 1
            entry = HistoryEntry(
                self.now(), process, Phase.INVOKE, verb, number, job, token, detail
            )
            self._open[number] = entry
            self._entries.append(entry)
            return number

    def end(
        self,
        operation: int,
        phase: Phase,
        *,
        job: str | None = None,
        token: int | None = None,
        **detail: Any,
    ) -> None:
        """Record the outcome; a second end of the same operation is ignored."""
        with self._lock:
            begun = self._open.pop(operation, None)
            if begun is None:
                return
            self._entries.append(
                HistoryEntry(
                    self.now(),
                    begun.process,
                    phase,
                    begun.verb,
                    operation,
                    job if job is not None else begun.job,
                    token if token is not None else begun.token,
                    detail,
                )
            )

    def record(
        self, process: str, verb: Verb, *, job: str | None, token: int | None, **detail: Any
    ) -> None:
        """Record an operation that has succeeded, without its beginning."""
        self.end(self.invoke(process, verb, job=job, token=token, **detail), Phase.OK, **detail)

    def mark_unknown(self, process: str | None = None) -> None:
        """Give the open operations of one process, or of all, an unknown outcome."""
        with self._lock:
            unended = [
                n for n, entry in self._open.items() if process is None or entry.process == process
            ]
        for number in unended:
            self.end(number, Phase.INFO)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def operations(self, *verbs: Verb) -> list[Operation]:
        """The operations with their outcome; one without an end has an unknown outcome."""
        begun: dict[int, HistoryEntry] = {}
        ends: dict[int, HistoryEntry] = {}
        for entry in self.entries:
            (begun if entry.phase is Phase.INVOKE else ends)[entry.operation] = entry
        return [
            _paired(entry, ends.get(number))
            for number, entry in begun.items()
            if not verbs or entry.verb in verbs
        ]

    def faults(self) -> list[HistoryEntry]:
        return [
            entry
            for entry in self.entries
            if entry.verb is Verb.FAULT and entry.phase is Phase.INVOKE
        ]

    def write(self, path: Path) -> None:
        with path.open("w") as out:
            for entry in self.entries:
                out.write(json.dumps(asdict(entry), default=str) + "\n")

    @classmethod
    def read(cls, path: Path) -> History:
        def entry(line: str) -> HistoryEntry:
            given = json.loads(line)
            given |= {"phase": Phase(given["phase"]), "verb": Verb(given["verb"])}
            return HistoryEntry(**given)

        return cls(entry(line) for line in path.read_text().splitlines() if line)


def _paired(begun: HistoryEntry, end: HistoryEntry | None) -> Operation:
    last = end or begun
    return Operation(
        process=begun.process,
        verb=begun.verb,
        job=last.job,
        token=last.token,
        outcome=Phase.INFO if end is None else end.phase,
        began=begun.at,
        ended=None if end is None else end.at,
        detail={**begun.detail, **last.detail},
    )
