"""Where in a trace a job was enqueued, as its row carries it: W3C's traceparent, and its tracestate
behind a line break. Plain text, so that whoever does not trace can still hand it on."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_STATE_LENGTH = 512  # what W3C asks everyone to carry; the row has room for it
_MAX_MEMBERS = 32
_LONG_MEMBER = 128  # W3C: where there is no room for all of them, those go first

_PARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace_id>(?!0{32})[0-9a-f]{32})"
    r"-(?P<span_id>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_STATE = re.compile(r"[\x20-\x7e\t]*")
# A mark in the tracestate, where the format has room for one: enqueued together with many others.
_BULK = "faultline=bulk"


class Origin(NamedTuple):
    trace_id: str
    span_id: str
    flags: str
    state: str = ""
    is_bulk: bool = False

    def text(self) -> str:
        parent = f"00-{self.trace_id}-{self.span_id}-{self.flags}"
        members = _members(self.state)
        if self.is_bulk:
            members = [_BULK, *members]
        state = _bounded(members)
        return f"{parent}\n{state}" if state else parent


def read(text: str | None) -> Origin | None:
    """None for what is not a place in a trace, whoever wrote it."""
    if text is None:
        return None
    parent, _, state = text.partition("\n")
    found = _PARENT.fullmatch(parent.strip())
    if found is None or (found["version"] == "00" and found["more"]):
        return None
    if _STATE.fullmatch(state) is None:
        state = ""  # the place is known all the same
    is_bulk = _BULK in [member.strip() for member in state.split(",")]
    members = _bounded(_members(state))
    return Origin(found["trace_id"], found["span_id"], found["flags"], members, is_bulk)


def from_headers(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """The text for a job that came with these headers of an HTTP request; None if they say nothing."""
    if traceparent is None or "\n" in traceparent:
        return None
    origin = read(f"{traceparent}\n{tracestate or ''}")
    return None if origin is None else origin._replace(is_bulk=False).text()


def _members(state: str) -> list[str]:
    """Without our own mark: it is about one enqueue, and not about what follows from it."""
    members = [member.strip() for member in state.split(",")]
    return [member for member in members if member and not member.startswith("faultline=")]


def _bounded(members: list[str]) -> str:
    members = members[:_MAX_MEMBERS]
    if len(",".join(members)) > MAX_STATE_LENGTH:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(",".join(members)) > MAX_STATE_LENGTH:
        members.pop()
    return ",".join(members)
