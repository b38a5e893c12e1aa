"""The spans of enqueue, claim and reconcile.

Those of an attempt are in attempt.py.

Names and attributes follow OpenTelemetry's conventions for messaging; Faultline's own attributes begin with
`faultline.`. Spans contain no payload, result or error message.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider

from faultline.events import Event
from faultline.model import Claim, Enqueued
from faultline.tracing.activation import Enqueueing, suppress_errors, version
from faultline.tracing.attempt import (
    AttemptTrace,
    context_of,
    mark_failed,
    messaging,
    span_context_of,
    text_of,
)

if TYPE_CHECKING:
    from faultline.statements.protocol import ReconciledJob

T = TypeVar("T")

# In a bulk enqueue of more jobs, each job gets a trace of its own, linked to the enqueue.
MAX_IN_ONE_TRACE = 100
_MAX_LINKS = 100  # of a claim; the SDK keeps 128
_MAX_EVENTS = 100


class Spans:
    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._tracer: Tracer = provider.get_tracer("faultline", version())

    @suppress_errors
    def enqueueing(self, task: str, queue: str, count: int, parent: str | None) -> Enqueueing:
        context: Context | None = None  # the current one
        if parent is not None and not trace.get_current_span().get_span_context().is_valid:
            context = context_of(span_context_of(parent))
        attributes = messaging("enqueue", "send", queue)
        attributes["faultline.task"] = task
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        span = self._tracer.start_span(
            f"enqueue {queue}", context=context, kind=SpanKind.PRODUCER, attributes=attributes
        )
        carrier = text_of(span.get_span_context(), is_bulk=count > MAX_IN_ONE_TRACE)
        return TracedEnqueueing(span, carrier or parent)

    @suppress_errors
    def claimed(self, claims: Sequence[Claim], worker: str, began_ns: int) -> list[AttemptTrace]:
        """One trace for each claim. A claim without jobs gets no span."""
        queues = {claim.queue for claim in claims}
        queue = queues.pop() if len(queues) == 1 else None
        attributes = messaging("claim", "receive", queue)
        attributes["messaging.batch.message_count"] = len(claims)
        attributes["messaging.client.id"] = worker
        enqueued_in = [span_context_of(claim.trace_context) for claim in claims[:_MAX_LINKS]]
        span = self._tracer.start_span(
            f"claim {queue}" if queue else "claim",
            context=Context(),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=[Link(each, {"faultline.link": "enqueue"}) for each in enqueued_in if each],
            start_time=began_ns,
        )
        span.end()
        claimed_in = Link(span.get_span_context(), {"faultline.link": "claim"})
        return [AttemptTrace(self._tracer, claim, worker, claimed_in) for claim in claims]

    @suppress_errors
    def continued(self, claim: Claim, carrier: str) -> AttemptTrace:
        """In a handler's child process: join the attempt that its worker traces."""
        attempt = AttemptTrace(self._tracer, claim, None, None)
        attempt.join(context_of(span_context_of(carrier)))
        return attempt

    @suppress_errors
    def reconciled(self, leases: Sequence[ReconciledJob], began_ns: int) -> None:
        """The reconciler has reconciled leases of lost workers, and expired ones."""
        span = self._tracer.start_span(
            "reconcile",
            context=Context(),
            kind=SpanKind.CLIENT,
            attributes={
                "messaging.system": "faultline",
                "messaging.operation.name": "reconcile",
                "messaging.batch.message_count": len(leases),
            },
            start_time=began_ns,
        )
        for lease in leases[:_MAX_EVENTS]:
            attributes: dict[str, Any] = {
                "faultline.job_id": str(lease.job_id),
                "faultline.lost_token": lease.fencing_token,
                "faultline.lost_worker": lease.worker,
                "faultline.cause": lease.cause,
                "faultline.state": lease.state.value,
            }
            span.add_event(Event.LEASE_REAPED.value, attributes)
        span.end()


class TracedEnqueueing(Enqueueing):
    def __init__(self, span: Span, carrier: str | None) -> None:
        super().__init__(carrier)
        self._span = span

    def answered(self, answer: T) -> T:
        self._see(answer)
        return answer

    @suppress_errors
    def _see(self, answer: Enqueued | Sequence[Enqueued] | Any) -> None:
        if isinstance(answer, Enqueued):
            job_id = str(answer.job_id)
            self._span.set_attribute("messaging.message.id", job_id)
            self._span.set_attribute("faultline.job_id", job_id)
            self._span.set_attribute("faultline.existing", answer.existing)
            self._span.set_attribute("faultline.outcome", answer.outcome.value)
        elif isinstance(answer, list):
            existing = sum(1 for each in answer if each.existing)
            self._span.set_attribute("faultline.existing_count", existing)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(error)

    @suppress_errors
    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            mark_failed(self._span, error)
        self._span.end(time.time_ns())
