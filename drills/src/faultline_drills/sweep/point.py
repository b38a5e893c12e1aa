"""The points of a sweep: each message of a process, with a reproducible name.

Message numbers are not reproducible, because heartbeats and polls follow the clock and sessions run
concurrently. The n-th message of one kind on sessions of one purpose is: "worker: faultline.claim #2".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from faultline_drills.proxy import Message, MessageKind
from faultline_drills.proxy.matchers import is_commit

_VERB = re.compile(r"faultline\.(\w+) ?\(")
_COMMENT = re.compile(r"--[^\n]*\n")
_WORDS = 3
SCHEDULER_PURPOSE = "scheduler"  # of the session that fires schedules


class SweepFault(StrEnum):
    KILL_BEFORE = "kill-before"  # SIGKILL; the message is not forwarded
    KILL_AFTER = "kill-after"  # SIGKILL once the message is forwarded
    DROP_REPLY = "drop-reply"  # forwarded; the reply is lost and the connection reset
    RESET = "reset"  # forwarded; the connection is reset at both ends
    # SIGSTOP while the message is held; it is delivered when the process is resumed:
    STOP = "stop"  # after twice the lease, when other workers have finished its jobs
    OVERLAP = "overlap"  # as soon as another worker runs one of its jobs

    @property
    def kills(self) -> bool:
        return self in (SweepFault.KILL_BEFORE, SweepFault.KILL_AFTER)

    @property
    def noun(self) -> str:
        """Singular; the tally counts it under its plural."""
        match self:
            case SweepFault.KILL_BEFORE | SweepFault.KILL_AFTER:
                return "kill"
            case SweepFault.DROP_REPLY:
                return "lost_answer"
            case SweepFault.STOP | SweepFault.OVERLAP:
                return "stop"
            case SweepFault.RESET:
                return "reset"

    @property
    def stops(self) -> bool:
        return self in (SweepFault.STOP, SweepFault.OVERLAP)


class SweepTarget(StrEnum):
    WORKER = "worker"
    RECONCILER = "reconciler"
    SCHEDULER = "scheduler"  # of a reconciler: only the messages about schedules
    MIGRATOR = "migrator"  # on an empty database
    UPGRADER = "upgrader"  # on a database of an older Faultline, with jobs in it

    @property
    def migrates(self) -> bool:
        return self in (SweepTarget.MIGRATOR, SweepTarget.UPGRADER)

    @property
    def holds_jobs(self) -> bool:
        """Whether another process can run a job that this one has caused to be claimed."""
        return self in (SweepTarget.WORKER, SweepTarget.RECONCILER)

    @property
    def command(self) -> str:
        """The `faultline` command of its process."""
        return "reconciler" if self is SweepTarget.SCHEDULER else self.value

    def includes(self, message: Message) -> bool:
        """Whether a message of the process belongs to this target."""
        purpose = message.application.partition(" ")[2]
        return self is not SweepTarget.SCHEDULER or purpose == SCHEDULER_PURPOSE


@dataclass(frozen=True, slots=True, order=True)
class MessageLabel:
    """The purpose of the session, and the kind of the message."""

    purpose: str
    what: str

    def __str__(self) -> str:
        return f"{self.purpose}: {self.what}"


@dataclass(frozen=True, slots=True, order=True)
class SweepPoint:
    target: SweepTarget
    label: MessageLabel
    occurrence: int

    def __str__(self) -> str:
        return f"{self.label} #{self.occurrence}"

    def fits(self, message: Message) -> bool:
        return label_of(message) == self.label


def label_of(message: Message) -> MessageLabel:
    match message.application.partition(" "):
        case "faultline", _, purpose:
            return MessageLabel(purpose or "start", _what(message))
        case _:
            return MessageLabel("handler's own", _what(message))


def _what(message: Message) -> str:
    if message.kind not in (MessageKind.QUERY, MessageKind.STATEMENT):
        return message.kind.value
    sql = " ".join(_COMMENT.sub(" ", message.sql).split())
    if is_commit(message):
        return "COMMIT"
    if "faultline.open_transaction(" in sql:  # the same message resets the session
        return "BEGIN"
    if "faultline.open_batch(" in sql:
        return "BEGIN of a batch"
    words = sql.partition(";")[0].split()[:_WORDS]
    if not words:
        return "check of a pooled session"
    if words[0] == "SELECT" and (verb := _VERB.search(sql)):
        return f"faultline.{verb[1]}"
    if words[0] == "SELECT" and (source := re.search(r"faultline\.(\w+)", sql)):
        return f"SELECT {source[0]}"
    return re.sub(r"\W+\Z", "", re.sub(r"\(.*", "", " ".join(words)))


def points_of(target: SweepTarget, runs: Sequence[Iterable[Message]]) -> list[SweepPoint]:
    """The points that all of these fault-free runs have, in the order of the first."""
    counts = [Counter(map(label_of, run)) for run in runs]
    points: list[SweepPoint] = []
    seen: Counter[MessageLabel] = Counter()
    for message in filter(target.includes, runs[0]):
        label = label_of(message)
        seen[label] += 1
        if all(seen[label] <= count[label] for count in counts):
            points.append(SweepPoint(target, label, seen[label]))
    return points
