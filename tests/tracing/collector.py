"""Something that takes traces over OTLP/http, as a collector does, and keeps them."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.waiting import wait_until


class Collector:
    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.answer = 200
        self.url = ""

    def spans(self) -> list[Any]:
        return [
            span
            for request in tuple(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans() if span.name == name]

    def one(self, name: str) -> Any:
        wait_until(lambda: self.named(name), f"a span named {name}")
        (found,) = self.named(name)
        return found

    def resources(self) -> list[dict[str, Any]]:
        return [
            {pair.key: plain(pair.value) for pair in resource.resource.attributes}
            for request in tuple(self.requests)
            for resource in request.resource_spans
        ]


def attributes(of: Any) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in of.attributes}


def plain(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.paths.append(self.path)
            if collector.answer == 200:
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(collector.answer)
            self.send_header("Content-Type", "application/x-protobuf")
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
