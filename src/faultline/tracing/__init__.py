"""OpenTelemetry traces of jobs, from the enqueue to the commit.

Costs one check while it is off.
"""

from faultline.tracing.activation import Enqueueing, tracing
from faultline.tracing.trace_context import from_headers

__all__ = ["Enqueueing", "from_headers", "tracing"]
