"""The spans of a process that traces: enqueue, claim, and take back. Those of an attempt are in attempt.py.

Names and attributes follow OpenTelemetry's conventions for messaging where they fit; what only Faultline
knows is called faultline.*. No payload, result, or message of an error is ever part of one.
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
from faultline.tracing.attempt import AttemptTrace
from faultline.tracing.harmless import harmless
from faultline.tracing.place import context_of, mark_failed, messaging, place_of, text_of
from faultline.tracing.switch import Enqueueing, version

if TYPE_CHECKING:
    from faultline.statements.protocol import ReconciledJob

T = TypeVar("T")

# Of one bulk enqueue: with more jobs than this, each gets a trace of its own, linked to the enqueue.
MAX_IN_ONE_TRACE = 100
_MAX_LINKS = 100  # of a claim; the SDK keeps 128
_MAX_EVENTS = 100


class Spans:
    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._tracer: Tracer = provider.get_tracer("faultline", version())

    @harmless
    def enqueueing(self, task: str, queue: str, count: int, parent: str | None) -> Enqueueing:
        context: Context | None = None  # the current one
        if parent is not None and not trace.get_current_span().get_span_context().is_valid:
            context = context_of(place_of(parent))
        attributes = messaging("enqueue", "send", queue)
        attributes["faultline.task"] = task
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        span = self._tracer.start_span(
            f"enqueue {queue}", context=context, kind=SpanKind.PRODUCER, attributes=attributes
        )
        carrier = text_of(span.get_span_context(), is_bulk=count > MAX_IN_ONE_TRACE)
        return TracedEnqueueing(span, carrier or parent)

    @harmless
    def claimed(self, claims: Sequence[Claim], worker: str, began_ns: int) -> list[AttemptTrace]:
        """One trace for each claim. A claim that found nothing is not worth a span."""
        queues = {claim.queue for claim in claims}
        queue = queues.pop() if len(queues) == 1 else None
        attributes = messaging("claim", "receive", queue)
        attributes["messaging.batch.message_count"] = len(claims)
        attributes["messaging.client.id"] = worker
        places = [place_of(claim.trace_context) for claim in claims[:_MAX_LINKS]]
        span = self._tracer.start_span(
            f"claim {queue}" if queue else "claim",
            context=Context(),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=[Link(place, {"faultline.link": "enqueue"}) for place in places if place],
            start_time=began_ns,
        )
        span.end()
        claimed_in = Link(span.get_span_context(), {"faultline.link": "claim"})
        return [AttemptTrace(self._tracer, claim, worker, claimed_in) for claim in claims]

    @harmless
    def continued(self, claim: Claim, carrier: str) -> AttemptTrace:
        """In the child process of a handler: go on with the attempt that its worker traces."""
        attempt = AttemptTrace(self._tracer, claim, None, None)
        attempt.join(context_of(place_of(carrier)))
        return attempt

    @harmless
    def reconciled(self, leases: Sequence[ReconciledJob], began_ns: int) -> None:
        """The reconciler has taken leases from workers that are lost, or too late."""
        span = self._tracer.start_span(
            "take back",
            context=Context(),
            kind=SpanKind.CLIENT,
            attributes={
                "messaging.system": "faultline",
                "messaging.operation.name": "take back",
                "messaging.batch.message_count": len(leases),
            },
            start_time=began_ns,
        )
        for lease in leases[:_MAX_EVENTS]:
            told: dict[str, Any] = {
                "faultline.job_id": str(lease.job_id),
                "faultline.lost_token": lease.fencing_token,
                "faultline.lost_worker": lease.worker,
                "faultline.cause": lease.cause,
                "faultline.state": lease.state.value,
            }
            span.add_event(Event.LEASE_REAPED.value, told)
        span.end()


class TracedEnqueueing(Enqueueing):
    def __init__(self, span: Span, carrier: str | None) -> None:
        super().__init__(carrier)
        self._span = span

    def answered(self, answer: T) -> T:
        self._see(answer)
        return answer

    @harmless
    def _see(self, answer: Enqueued | Sequence[Enqueued] | Any) -> None:
        if isinstance(answer, Enqueued):
            job_id = str(answer.job_id)
            self._span.set_attribute("messaging.message.id", job_id)
            self._span.set_attribute("faultline.job_id", job_id)
            self._span.set_attribute("faultline.existing", answer.existing)
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

    @harmless
    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            mark_failed(self._span, error)
        self._span.end(time.time_ns())
