"""Exports traces over OTLP/HTTP from worker, API and reconciler.

If the application has set up OpenTelemetry, its provider is used. Otherwise OTEL_EXPORTER_OTLP_ENDPOINT or
FAULTLINE_TRACING=on enables the export, and the SDK's variables (OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER,
OTEL_BSP_…) configure it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from faultline.errors import InvalidSettings, TracingUnavailable
from faultline.events import Event, emit
from faultline.tracing.activation import VARIABLE, requested, suppress_errors, tracing, version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_FLUSH_SECONDS = 3.0
_LOG_SECONDS = 60.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_own: list[TracerProvider] = []  # at most one: the provider that `set_up` made


@contextlib.contextmanager
def exporting(service: str) -> Iterator[None]:
    """Export traces inside the block; enter it after the application is loaded."""
    set_up(service)
    try:
        yield
    finally:
        flush()


def set_up(service: str) -> None:
    """Enable tracing if the application or the environment does.

    If tracing is impossible, FAULTLINE_TRACING=on makes that an error. An endpoint alone may be meant for
    other programs of the machine, so it is only logged.
    """
    wanted = requested()
    if wanted is False or tracing.find() is not None:
        return
    has_endpoint = any(os.environ.get(name, "").strip() for name in _ENDPOINTS)
    if not (wanted or has_endpoint) or _is_disabled():
        return
    try:
        _check_protocol()
        provider = _make_provider(service)
    except (InvalidSettings, TracingUnavailable) as error:
        if wanted:
            raise
        emit(Event.DEGRADED, reason=f"no traces: {error.message}", code=error.code, hint=error.hint)
        return
    from opentelemetry import trace

    trace.set_tracer_provider(provider)  # for spans of handlers
    _own.append(provider)
    tracing.use(provider)


def flush() -> None:
    """Send pending spans, for a few seconds at most: the collector may be unreachable."""
    if (spans := tracing.spans) is None:
        return
    send = _own[0].shutdown if _own else getattr(spans.provider, "force_flush", None)
    if send is not None:
        thread = threading.Thread(
            target=suppress_errors(send), name="faultline-traces", daemon=True
        )
        thread.start()
        thread.join(_FLUSH_SECONDS)


def _is_disabled() -> bool:
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return is_off or os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def _check_protocol() -> None:
    for name in _PROTOCOLS:
        if given := os.environ.get(name, "").strip():
            if given != "http/protobuf":
                raise InvalidSettings(
                    f"{name}={given[:40]!r} is not supported",
                    hint="http/protobuf, or set up OpenTelemetry in your application",
                )
            return


def _make_provider(service: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailable(
            f"tracing is enabled, but {error.name or 'OpenTelemetry'} is not installed",
            hint=f"pip install 'faultline-queue[tracing]', or {VARIABLE}=off",
        ) from None
    resource = Resource.create({"faultline.version": version(), "process.pid": os.getpid()})
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": f"faultline-{service}"}))
    _redirect_sdk_logs()
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class _SdkLogHandler(logging.Handler):
    """Turns log records of the SDK into our events, at most one a minute."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._next_at = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _LOG_SECONDS
            reason = f"traces: {record.getMessage()}"[:500]
            emit(Event.DEGRADED, reason=reason, code="traces_not_sent")


def _redirect_sdk_logs() -> None:
    """Log the SDK's records as events, unless the application has configured logging."""
    logger = logging.getLogger("opentelemetry")
    if not logging.getLogger().handlers and not logger.handlers:
        logger.addHandler(_SdkLogHandler())
        logger.propagate = False
