"""Converts trace contexts between text and OpenTelemetry; common attributes."""

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
from faultline.tracing.trace_context import TraceContext, parse


# The jobs of a bulk enqueue have the same text.
@functools.lru_cache(maxsize=512)
def span_context_of(text: str | None) -> SpanContext | None:
    """None for a row without a valid trace context."""
    parsed = parse(text)
    if parsed is None:
        return None
    return SpanContext(
        int(parsed.trace_id, 16),
        int(parsed.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parsed.flags, 16)),
        trace_state=TraceState.from_header([parsed.state]),
    )


@functools.lru_cache(maxsize=512)
def is_bulk(text: str | None) -> bool:
    parsed = parse(text)
    return parsed is not None and parsed.is_bulk


def text_of(span_context: SpanContext, *, is_bulk: bool = False) -> str | None:
    if not span_context.is_valid:  # tracing is disabled in the SDK
        return None
    return TraceContext(
        f"{span_context.trace_id:032x}",
        f"{span_context.span_id:016x}",
        f"{span_context.trace_flags:02x}",
        span_context.trace_state.to_header(),
        is_bulk,
    ).text()


def context_of(span_context: SpanContext | None) -> Context:
    """The context for a child span; None gives an empty context, for a new trace."""
    empty = Context()
    if span_context is None:
        return empty
    return trace.set_span_in_context(NonRecordingSpan(span_context), empty)


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
    """Record the kind of the error, not its message: messages may quote payloads."""
    name = kind_of(error)
    span.set_attribute("error.type", name)
    described = f"stale lease: {error.reason}" if isinstance(error, StaleLease) else name
    span.set_status(Status(StatusCode.ERROR, described))


def kind_of(error: BaseException) -> str:
    if isinstance(error, FaultlineError):
        return error.code
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
