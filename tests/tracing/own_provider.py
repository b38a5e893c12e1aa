"""An application that sets up OpenTelemetry itself."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from faultline import Faultline, Job
from tests.tracing.apps import span_inside

provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

app = Faultline()


@app.task(name="compute", queue="shop", process=True)
def compute(job: Job) -> None:
    span_inside("computing")


@app.task(name="greet", queue="shop")
async def greet(job: Job) -> None:
    span_inside("greeting")
