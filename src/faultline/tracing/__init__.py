"""Traces of jobs with OpenTelemetry, from who enqueued one to what became of it. Off, it costs a look."""

from faultline.tracing.carrier import from_headers
from faultline.tracing.switch import Enqueueing, tracing

__all__ = ["Enqueueing", "from_headers", "tracing"]
