"""Where a process can be struck: at each message that it sends, named so that it is found again. Pure.

Raw numbers are not reproducible, because heartbeats and polls come by the clock and sessions run side by
side. The n-th message of one kind on sessions of one purpose is: "worker: faultline.claim #2".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from faultline_drills.nemesis.messages import is_commit
from faultline_drills.proxy import Message, MessageKind

_VERB = re.compile(r"faultline\.(\w+) ?\(")
_COMMENT = re.compile(r"--[^\n]*\n")
_WORDS = 3


class SweepFault(StrEnum):
    KILL_BEFORE = "kill-before"  # SIGKILL; the message is never sent on
    KILL_AFTER = "kill-after"  # SIGKILL as soon as it is sent on
    DROP_REPLY = "drop-reply"  # the server does it, the answer is lost, the connection breaks
    RESET = "reset"  # sent on, and the connection is reset at both ends
    # SIGSTOP with the message on its way, which arrives when the process goes on:
    STOP = "stop"  # after two leases' time, when others have done all there is to do
    OVERLAP = "overlap"  # as soon as another worker is at what it held

    @property
    def kills(self) -> bool:
        return self in (SweepFault.KILL_BEFORE, SweepFault.KILL_AFTER)

    @property
    def noun(self) -> str:
        """One of them, to be counted with an s."""
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
    MIGRATOR = "migrator"  # on an empty database
    UPGRADER = "upgrader"  # on one that an older Faultline has left, with jobs in it

    @property
    def migrates(self) -> bool:
        return self in (SweepTarget.MIGRATOR, SweepTarget.UPGRADER)


@dataclass(frozen=True, slots=True, order=True)
class MessageLabel:
    """What kind of message, on sessions of what purpose."""

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
    if "faultline.open_transaction(" in sql:  # in one message with the reset of the session
        return "BEGIN"
    words = sql.partition(";")[0].split()[:_WORDS]
    if not words:
        return "check of a pooled session"
    if words[0] == "SELECT" and (verb := _VERB.search(sql)):
        return f"faultline.{verb[1]}"
    if words[0] == "SELECT" and (source := re.search(r"faultline\.(\w+)", sql)):
        return f"SELECT {source[0]}"
    return re.sub(r"\W+\Z", "", re.sub(r"\(.*", "", " ".join(words)))


def points_of(target: SweepTarget, runs: Sequence[Iterable[Message]]) -> list[SweepPoint]:
    """The points that every one of these runs without a fault has passed, in the order of the first."""
    counts = [Counter(map(label_of, run)) for run in runs]
    points: list[SweepPoint] = []
    seen: Counter[MessageLabel] = Counter()
    for message in runs[0]:
        label = label_of(message)
        seen[label] += 1
        if all(seen[label] <= count[label] for count in counts):
            points.append(SweepPoint(target, label, seen[label]))
    return points
