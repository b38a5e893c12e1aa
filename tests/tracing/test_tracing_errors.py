"""Whatever is wrong with a trace, the job is not the one to pay for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import TraceFlags

from faultline import Faultline, InvalidInput, Job, JobState
from faultline.tracing import tracing
from tests.running import Connection, value, work_off
from tests.tracing.recorded import Recorded, links, parent_id, span_id

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "carried",
    [
        "",
        "nonsense",
        "\n\n\n",
        f"00-{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01\nvendor=a",
        "\u0001\u2028\U0001f4a9" * 300,
        f"00-{TRACE}-{SPAN}-01-" + "x" * 900,
    ],
)
def test_a_row_that_carries_nonsense_is_run_in_a_trace_of_its_own(
    app: Faultline, recorded: Recorded, conn: Connection, carried: str
) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    job_id = nothing.enqueue().job_id
    conn.execute("UPDATE faultline.jobs SET trace_context = %s", [carried])
    assert work_off(app, job_id).state is JobState.SUCCEEDED
    execute = recorded.one("execute default")
    assert parent_id(execute) is None
    assert links(execute) == {"claim": span_id(recorded.one("claim default"))}


@pytest.mark.parametrize("state", ["=", ",,,,", "a=b,a=c", "=" * 900, "A=1", "vendor=\u00e9"])
def test_a_state_that_is_nonsense_does_not_cost_the_place_in_the_trace(
    app: Faultline, recorded: Recorded, conn: Connection, state: str
) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    job_id = nothing.enqueue().job_id
    conn.execute("UPDATE faultline.jobs SET trace_context = %s", [f"00-{TRACE}-{SPAN}-01\n{state}"])
    assert work_off(app, job_id).state is JobState.SUCCEEDED
    assert parent_id(recorded.one("execute default")) == int(SPAN, 16)


class Broken(Exception):
    pass


class BrokenAtStart(SpanProcessor):
    def on_start(self, span: Span, parent_context: Any = None) -> None:
        raise Broken


class BrokenAtEnd(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise Broken


class BrokenExporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise Broken


class BrokenSampler(Sampler):
    def should_sample(self, *args: Any, **kwargs: Any) -> Any:
        raise Broken

    def get_description(self) -> str:
        return "broken"


def with_processor(processor: SpanProcessor) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_processor(BrokenAtStart()),
        lambda: with_processor(BrokenAtEnd()),
        lambda: with_processor(SimpleSpanProcessor(BrokenExporter())),
        lambda: TracerProvider(sampler=BrokenSampler(), shutdown_on_exit=False),
    ],
    ids=["start", "end", "exporter", "sampler"],
)
def test_a_broken_tracer_harms_neither_enqueue_nor_attempt_nor_commit(
    app: Faultline, make: Any, recorded: Recorded
) -> None:
    @app.task()
    async def pays(job: Job) -> None:
        async with job.transaction():
            job.result = "paid"

    @app.task()
    def returns(job: Job) -> str:
        return "returned"

    tracing.use(make())
    paying, returning = pays.enqueue().job_id, returns.enqueue_many([{}])[0].job_id
    assert work_off(app, paying).result == "paid"
    assert work_off(app, returning).result == "returned"


def test_an_attempt_that_is_not_sampled_hands_that_decision_on(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    tracing.use(TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))
    job_id = nothing.enqueue().job_id
    flags = value(conn, "SELECT right(trace_context, 2) FROM faultline.jobs")
    assert int(flags, 16) & TraceFlags.SAMPLED == 0
    tracing.use(recorded.provider)
    assert work_off(app, job_id).state is JobState.SUCCEEDED
    assert recorded.named("execute default") == []


def test_an_enqueue_that_is_refused_beforehand_is_refused_as_ever(
    app: Faultline, recorded: Recorded
) -> None:
    @app.task()
    async def nothing(job: Job, given: Any) -> None:
        return None

    with pytest.raises(InvalidInput):
        nothing.enqueue(given=object())
    with pytest.raises(InvalidInput):
        nothing.options(priority=77).enqueue(given=1)
