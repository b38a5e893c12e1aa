"""The spans of one attempt: `execute`, its commits, and its events.

A first attempt continues the trace of the enqueue. A retry, and a job of a large bulk enqueue, begins a trace
of its own with a link to the enqueue, so that traces stay short and readable.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
)

from faultline.errors import FaultlineError, StaleLease
from faultline.events import ROUTINE, Event
from faultline.model import Claim
from faultline.tracing.activation import suppress_errors
from faultline.tracing.trace_context import TraceContext, parse

_OUTCOMES = {"success": "succeeded"}
_ERRORS = {"stale": StaleLease.code}  # the worker noticed itself that its lease was lost


# Fields of an event that the span has as its own attributes or as its exception.
_ELSEWHERE = frozenset({"error", "traceback", "task", "attempt"})


class AttemptTrace:
    __slots__ = (
        "_claim",
        "_claimed_in",
        "_context",
        "_error",
        "_is_sampled",
        "_span",
        "_tracer",
        "_worker",
    )

    def __init__(
        self, tracer: Tracer, claim: Claim, worker: str | None, claimed_in: Link | None
    ) -> None:
        self._tracer = tracer
        self._claim = claim
        self._worker = worker
        self._claimed_in = claimed_in
        self._span: Span | None = None  # while the attempt runs
        self._context: Context | None = None  # for the spans inside
        self._is_sampled = False
        self._error: BaseException | None = None

    # ── the attempt ──────────────────────────────────────────────────────────────────────────────

    @suppress_errors
    def begin(self) -> None:
        """Start the span, and make it current for the rest of this asyncio task."""
        claim = self._claim
        attributes = self._about("execute", "process")
        attributes["messaging.message.id"] = claim.id
        attributes["faultline.max_attempts"] = claim.max_attempts
        if claim.scheduled_for is not None:
            attributes["faultline.scheduled_for"] = claim.scheduled_for.isoformat()
        enqueued_in = span_context_of(claim.trace_context)
        links = [] if self._claimed_in is None else [self._claimed_in]
        continues = claim.attempt == 1 and not is_bulk(claim.trace_context)
        if enqueued_in is not None and not continues:
            links.append(Link(enqueued_in, {"faultline.link": "enqueue"}))
        self._span = self._tracer.start_span(
            f"execute {claim.queue}",
            context=context_of(enqueued_in if continues else None),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        self._is_sampled = self._span.is_recording()
        self._context = trace.set_span_in_context(self._span)
        contexts.attach(self._context)

    @suppress_errors
    def share_batch(self, others: Sequence[AttemptTrace]) -> None:
        """Note that the handler does this job and others in one call, inside of this span."""
        for each in (self, *others):
            if each._span is not None:
                each._span.set_attribute("messaging.batch.message_count", 1 + len(others))
        for other in others:
            if self._span is not None and other._span is not None:
                self._span.add_link(other._span.get_span_context(), {"faultline.link": "batch"})
        if self._context is not None:
            contexts.attach(self._context)

    @suppress_errors
    def join(self, context: Context) -> None:
        """Continue inside a span that another process started."""
        begun = trace.get_current_span(context).get_span_context()
        self._is_sampled = begun.trace_flags.sampled
        self._context = context
        contexts.attach(context)

    @property
    @suppress_errors
    def carrier(self) -> str | None:
        """The trace context that another process joins."""
        return None if self._span is None else text_of(self._span.get_span_context())

    @suppress_errors
    def took_over(self, *, lost_worker: str | None, lost_token: int, cause: str) -> None:
        if self._span is not None:
            lost = {"lost_token": lost_token, "cause": cause, "lost_worker": lost_worker}
            self._span.set_attribute("faultline.takeover", True)
            self._span.add_event("takeover", _named(lost))

    @suppress_errors
    def note(self, event: Event, fields: Mapping[str, Any]) -> None:
        """Add an event of this attempt, without error messages: see `mark_failed`."""
        if self._span is not None and event not in ROUTINE:
            attributes = {name: value for name, value in fields.items() if name not in _ELSEWHERE}
            self._span.add_event(event.value, _named(attributes))

    def failed(self, error: BaseException) -> None:
        self._error = error

    @suppress_errors
    def finish(self, exit_reason: str) -> None:
        span, self._span = self._span, None
        if span is None:  # it was not started, or has ended
            return
        span.set_attribute("faultline.outcome", _OUTCOMES.get(exit_reason, exit_reason))
        if exit_reason not in ("success", "released", "snoozed"):
            if self._error is not None:
                mark_failed(span, self._error)
            else:
                name = _ERRORS.get(exit_reason, exit_reason)
                span.set_attribute("error.type", name)
                span.set_status(Status(StatusCode.ERROR, name))
        span.end()

    # ── commits ──────────────────────────────────────────────────────────────────────────────────

    def committing(self, inner: AbstractContextManager[None], how: str) -> Committing:
        """`inner` inside a commit span."""
        return Committing(self, inner, how)

    @suppress_errors
    def batch_committed(
        self, began_ns: int, batch_size: int, refused_for: str | None, current_token: int | None
    ) -> None:
        span = self._start_commit("batch", began_ns)
        if span is not None:
            span.set_attribute("messaging.batch.message_count", batch_size)
            if refused_for is None:
                span.end()
            else:
                self._end_commit(span, StaleLease(refused_for, current_token=current_token))

    @suppress_errors
    def _start_commit(self, how: str, began_ns: int | None) -> Span | None:
        """A child of the handler's current span in this thread, else of the attempt."""
        if not self._is_sampled:
            return None
        is_inside = began_ns is None and trace.get_current_span().get_span_context().is_valid
        attributes = self._about("commit", "settle")
        attributes["faultline.commit"] = how
        return self._tracer.start_span(
            f"commit {self._claim.queue}",
            context=None if is_inside else self._context,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=began_ns,
        )

    @suppress_errors
    def _end_commit(self, span: Span, error: BaseException | None) -> None:
        if isinstance(error, StaleLease):
            refusal = {
                "reason": error.reason,
                "stale_token": error.stale_token or self._claim.fencing_token,
                "current_token": error.current_token,
            }
            span.set_attributes(_named(refusal))
        if error is not None:
            mark_failed(span, error)
        span.end(time.time_ns())

    def _about(self, operation: str, kind: str) -> dict[str, Any]:
        claim = self._claim
        attributes = messaging(operation, kind, claim.queue)
        if self._worker is not None:
            attributes["messaging.client.id"] = self._worker
        attributes["faultline.job_id"] = claim.id
        attributes["faultline.task"] = claim.task
        attributes["faultline.token"] = claim.fencing_token
        attributes["faultline.attempt"] = claim.attempt
        return attributes


class Committing:
    """A context manager that records the commit of one transaction as a span."""

    __slots__ = ("_attempt", "_how", "_inner", "_span")

    def __init__(
        self, attempt: AttemptTrace, inner: AbstractContextManager[None], how: str
    ) -> None:
        self._attempt = attempt
        self._inner = inner
        self._how = how
        self._span: Span | None = None

    def __enter__(self) -> None:
        self._span = self._attempt._start_commit(self._how, None)
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return self._inner.__exit__(kind, error, traceback)
        finally:
            if self._span is not None:
                self._attempt._end_commit(self._span, error)


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {f"faultline.{name}": value for name, value in fields.items() if value is not None}


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
