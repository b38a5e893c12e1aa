"""Prometheus metrics; prometheus_client is imported only if they are switched on."""

from faultline.metrics.catalogue import CATALOGUE, Kind, Metric, Part
from faultline.metrics.meter import (
    Exposition,
    count_enqueued,
    counted,
    counted_by_queue,
    exposition,
    record_request,
    switch_on,
)

__all__ = [
    "CATALOGUE",
    "Exposition",
    "Kind",
    "Metric",
    "Part",
    "count_enqueued",
    "counted",
    "counted_by_queue",
    "exposition",
    "record_request",
    "switch_on",
]
