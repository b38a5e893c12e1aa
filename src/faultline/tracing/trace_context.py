"""The W3C trace context of a job's enqueue, as its row stores it.

The text is the traceparent, a line break, and the tracestate. A process without OpenTelemetry can copy it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_STATE_LENGTH = 512  # W3C requires at least this; the row has room for it
_MAX_MEMBERS = 32
_LONG_MEMBER = 128  # W3C: these are dropped first when there is too little room

_PARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace_id>(?!0{32})[0-9a-f]{32})"
    r"-(?P<span_id>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_STATE = re.compile(r"[\x20-\x7e\t]*")
# Our entry in the tracestate of a job that was enqueued together with many others.
_BULK = "faultline=bulk"


class TraceContext(NamedTuple):
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


def parse(text: str | None) -> TraceContext | None:
    """None for text that is not a trace context."""
    if text is None:
        return None
    parent, _, state = text.partition("\n")
    found = _PARENT.fullmatch(parent.strip())
    if found is None or (found["version"] == "00" and found["more"]):
        return None
    if _STATE.fullmatch(state) is None:
        state = ""  # the traceparent is valid without it
    is_bulk = _BULK in [member.strip() for member in state.split(",")]
    members = _bounded(_members(state))
    return TraceContext(found["trace_id"], found["span_id"], found["flags"], members, is_bulk)


def from_headers(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """The trace context of HTTP headers, as text for a job; None if there is none."""
    if traceparent is None or "\n" in traceparent:
        return None
    parsed = parse(f"{traceparent}\n{tracestate or ''}")
    return None if parsed is None else parsed._replace(is_bulk=False).text()


def _members(state: str) -> list[str]:
    """Without our own entry: it is about one enqueue, not about the spans that follow."""
    members = [member.strip() for member in state.split(",")]
    return [member for member in members if member and not member.startswith("faultline=")]


def _bounded(members: list[str]) -> str:
    members = members[:_MAX_MEMBERS]
    if len(",".join(members)) > MAX_STATE_LENGTH:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(",".join(members)) > MAX_STATE_LENGTH:
        members.pop()
    return ",".join(members)
