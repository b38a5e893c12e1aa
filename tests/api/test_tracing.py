"""The API takes part in its client's trace, and posts its own spans."""

from __future__ import annotations

import pytest

from tests.api.served import client_of, make_key, served
from tests.tracing.collector import collecting

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_an_enqueue_over_http_is_a_span_in_the_clients_trace(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        key = make_key(database_url)
        with served(database_url) as server:
            with client_of(server, key) as client:
                headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
                answer = client.post("/jobs", json={"task": "charge"}, headers=headers)
            assert answer.status_code == 201
            server.terminate()
            assert server.wait() == 0
        # It has ended, so all is there.
        (span,) = collector.named("enqueue default")
        assert span.trace_id.hex() == TRACE
        # FastAPI may make spans of its own, between the client's and this one.
        parents = {each.span_id: each.parent_span_id for each in collector.spans()}
        above = span.parent_span_id
        while above in parents:
            above = parents[above]
        assert above.hex() == CALLER
        assert {each["service.name"] for each in collector.resources()} == {"faultline-api"}
