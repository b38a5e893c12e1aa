"""What was traced, kept in memory, and how to wait for it."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link

from tests.waiting import wait_until


class Recorded:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def wait_for(self, name: str, count: int) -> list[ReadableSpan]:
        """Exactly so many; a span ends a moment after what it is about."""
        wait_until(lambda: len(self.named(name)) >= count, f"{count} spans named {name}")
        found = self.named(name)
        assert len(found) == count
        return sorted(found, key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        return self.wait_for(name, 1)[0]

    def text(self) -> str:
        """Everything that would leave the process."""
        return "\n".join(span.to_json() for span in self.all())


def attributes(of: ReadableSpan | Event | Link) -> dict[str, Any]:
    return dict(of.attributes or {})


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else int(span.parent.span_id)


def event(span: ReadableSpan, name: str) -> dict[str, Any]:
    found = [each for each in span.events if each.name == name]
    assert len(found) == 1, [each.name for each in span.events]
    return attributes(found[0])


def links(span: ReadableSpan) -> dict[str, int]:
    """What it is linked to, by what the link is for."""
    return {attributes(link)["faultline.link"]: int(link.context.span_id) for link in span.links}
