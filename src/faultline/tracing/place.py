"""A place in a trace, between the text that a row carries and what OpenTelemetry wants; and what all
spans of Faultline have in common."""

from __future__ import annotations

import functools
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from faultline.errors import FaultlineError, StaleLease
from faultline.tracing.carrier import Origin, read


@functools.lru_cache(
    maxsize=512
)  # the jobs of a bulk all carry the same, and are met more than once
def place_of(text: str | None) -> SpanContext | None:
    """None for a row that carries nothing, or nothing that can be read."""
    origin = read(text)
    if origin is None:
        return None
    return SpanContext(
        int(origin.trace_id, 16),
        int(origin.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(origin.flags, 16)),
        trace_state=TraceState.from_header([origin.state]),
    )


@functools.lru_cache(maxsize=512)
def is_bulk(text: str | None) -> bool:
    origin = read(text)
    return origin is not None and origin.is_bulk


def text_of(place: SpanContext, *, is_bulk: bool = False) -> str | None:
    if not place.is_valid:  # tracing has been switched off inside the SDK
        return None
    return Origin(
        f"{place.trace_id:032x}",
        f"{place.span_id:016x}",
        f"{place.trace_flags:02x}",
        place.trace_state.to_header(),
        is_bulk,
    ).text()


def context_of(place: SpanContext | None) -> Context:
    """For a span that goes on from there; an empty one, for a new trace, from nowhere."""
    empty = Context()
    return empty if place is None else trace.set_span_in_context(NonRecordingSpan(place), empty)


def messaging(operation: str, kind: str, queue: str | None) -> dict[str, Any]:
    attributes = {
        "messaging.system": "faultline",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if queue is not None:
        attributes["messaging.destination.name"] = queue
    return attributes


def mark_failed(span: Span, error: BaseException) -> None:
    """Which error it was, and not what it said: messages quote what handlers were given."""
    name = kind_of(error)
    span.set_attribute("error.type", name)
    described = f"stale lease: {error.reason}" if isinstance(error, StaleLease) else name
    span.set_status(Status(StatusCode.ERROR, described))


def kind_of(error: BaseException) -> str:
    if isinstance(error, FaultlineError):
        return error.code
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
