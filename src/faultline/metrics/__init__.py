"""Metrics for Prometheus. Off, and not even imported, until a process is told to count."""

from faultline.metrics.catalogue import CATALOGUE, Kind, Metric, Part
from faultline.metrics.meter import switch_on
from faultline.metrics.service import (
    Exposition,
    count_enqueued,
    counted,
    exposition,
    record_request,
)

__all__ = [
    "CATALOGUE",
    "Exposition",
    "Kind",
    "Metric",
    "Part",
    "count_enqueued",
    "counted",
    "exposition",
    "record_request",
    "switch_on",
]
