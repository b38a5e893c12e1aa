"""A job's first attempt continues the trace of its enqueue."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from faultline import Faultline, IdempotencyConflict, Job
from faultline.tracing import from_headers, tracing
from faultline.tracing.spans import MAX_IN_ONE_TRACE
from tests.running import Connection, value, work_off, working
from tests.tracing.recorded import Recorded, attributes, links, parent_id, span_id, trace_id
from tests.waiting import wait_until, yield_to_loop

SECRET = "correct horse battery staple"


def test_the_attempt_is_a_child_of_the_enqueue_and_the_commit_of_the_attempt(
    app: Faultline, recorded: Recorded
) -> None:
    @app.task(name="greet", queue="greetings")
    async def greet(job: Job) -> None:
        return None

    with recorded.tracer.start_as_current_span("request") as request:
        job_id = greet.enqueue().job_id
    record = work_off(app, job_id, queues=("greetings",))

    enqueue, execute = recorded.one("enqueue greetings"), recorded.one("execute greetings")
    commit, claim = recorded.one("commit greetings"), recorded.one("claim greetings")
    assert parent_id(enqueue) == request.get_span_context().span_id
    assert parent_id(execute) == span_id(enqueue)
    assert parent_id(commit) == span_id(execute)
    assert trace_id(enqueue) == trace_id(execute) == trace_id(commit)
    assert links(execute) == {"claim": span_id(claim)}
    assert links(claim) == {"enqueue": span_id(enqueue)}
    assert (enqueue.kind, execute.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (claim.kind, commit.kind) == (SpanKind.CLIENT, SpanKind.CLIENT)
    assert execute.status.status_code is StatusCode.UNSET

    found = attributes(execute)
    assert found["messaging.client.id"] == attributes(claim)["messaging.client.id"]
    assert {name: found[name] for name in found if name != "messaging.client.id"} == {
        "messaging.system": "faultline",
        "messaging.operation.name": "execute",
        "messaging.operation.type": "process",
        "messaging.destination.name": "greetings",
        "messaging.message.id": str(job_id),
        "faultline.job_id": str(job_id),
        "faultline.task": "greet",
        "faultline.token": record.fencing_token,
        "faultline.attempt": 1,
        "faultline.max_attempts": record.max_attempts,
        "faultline.outcome": "succeeded",
    }
    assert attributes(commit)["faultline.commit"] == "batch"
    assert attributes(commit)["messaging.operation.type"] == "settle"
    assert attributes(enqueue)["messaging.operation.type"] == "send"
    assert attributes(claim)["messaging.operation.type"] == "receive"


def test_enqueueing_on_an_event_loop_is_traced_the_same(app: Faultline, recorded: Recorded) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    async def enqueue() -> Any:
        one = await nothing.enqueue_async()
        many = await nothing.enqueue_many_async([{}, {}])
        await app.aclose()
        return one, many

    one, _ = asyncio.run(enqueue())
    with working(app):
        recorded.wait_for("execute default", 3)
    single, bulk = recorded.wait_for("enqueue default", 2)
    assert attributes(single)["messaging.message.id"] == str(one.job_id)
    assert attributes(bulk)["messaging.batch.message_count"] == 2


def handled_on_the_loop(app: Faultline, recorded: Recorded) -> Any:
    @app.task(name="handler")
    async def handler(job: Job) -> None:
        with recorded.tracer.start_as_current_span("inside"):
            async with job.transaction():
                pass

    return handler


def handled_in_a_thread(app: Faultline, recorded: Recorded) -> Any:
    @app.task(name="handler")
    def handler(job: Job) -> None:
        with recorded.tracer.start_as_current_span("inside"), job.transaction():
            pass

    return handler


@pytest.mark.parametrize("register", [handled_on_the_loop, handled_in_a_thread])
def test_a_handlers_spans_are_children_of_its_attempt(
    app: Faultline, recorded: Recorded, register: Any
) -> None:
    work_off(app, register(app, recorded).enqueue().job_id)

    execute, inside = recorded.one("execute default"), recorded.one("inside")
    commit = recorded.one("commit default")
    assert parent_id(inside) == span_id(execute)
    assert parent_id(commit) == span_id(inside)
    assert attributes(commit)["faultline.commit"] == "transaction"
    assert attributes(commit)["faultline.token"] == 1


def test_a_step_and_an_entry_into_ones_own_transaction_are_commits_too(
    app: Faultline, recorded: Recorded, database_url: str
) -> None:
    @app.task()
    def handler(job: Job) -> None:
        with job.fenced():
            pass
        with psycopg.connect(database_url) as own:
            job.commit(own)

    work_off(app, handler.enqueue().job_id)
    step, entry = recorded.wait_for("commit default", 2)
    assert attributes(step)["faultline.commit"] == "step"
    assert attributes(entry)["faultline.commit"] == "entry"
    assert parent_id(step) == parent_id(entry) == span_id(recorded.one("execute default"))


def test_a_job_that_a_handler_enqueues_is_in_the_same_trace(
    app: Faultline, recorded: Recorded
) -> None:
    @app.task(queue="second")
    async def second(job: Job) -> None:
        return None

    @app.task(queue="first")
    async def first(job: Job) -> None:
        await second.enqueue_async()

    first.enqueue()
    with working(app, queues=("first", "second")):
        recorded.one("execute second")
    assert parent_id(recorded.one("enqueue second")) == span_id(recorded.one("execute first"))
    assert trace_id(recorded.one("execute second")) == trace_id(recorded.one("enqueue first"))


def test_attempts_do_not_leak_into_each_other(app: Faultline, recorded: Recorded) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        await yield_to_loop()

    for _ in range(5):
        nothing.enqueue()
    with working(app, concurrency=2):
        executes = recorded.wait_for("execute default", 5)
    enqueues = recorded.wait_for("enqueue default", 5)
    assert sorted(map(parent_id, executes), key=str) == sorted(map(span_id, enqueues), key=str)
    assert len({trace_id(span) for span in executes}) == 5


def test_a_bulk_enqueue_is_one_span_and_its_attempts_are_its_children(
    app: Faultline, recorded: Recorded
) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    nothing.enqueue_many([{}] * 3)
    with working(app):
        executes = recorded.wait_for("execute default", 3)
    enqueue = recorded.one("enqueue default")
    assert [parent_id(execute) for execute in executes] == [span_id(enqueue)] * 3
    assert attributes(enqueue)["messaging.batch.message_count"] == 3
    assert attributes(enqueue)["faultline.existing_count"] == 0


def test_the_jobs_of_a_large_bulk_have_traces_of_their_own_linked_to_it(
    app: Faultline, recorded: Recorded
) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    count = MAX_IN_ONE_TRACE + 1
    nothing.enqueue_many([{}] * count)
    with working(app):
        executes = recorded.wait_for("execute default", count)
    enqueue = recorded.one("enqueue default")
    assert {parent_id(execute) for execute in executes} == {None}
    assert {links(execute)["enqueue"] for execute in executes} == {span_id(enqueue)}
    assert len({trace_id(execute) for execute in executes}) == count


def test_a_second_enqueue_with_one_key_is_marked_as_existing(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    @app.task()
    async def nothing(job: Job, number: int) -> None:
        return None

    nothing.options(idempotency_key="k").enqueue(number=1)
    carried = value(conn, "SELECT trace_context FROM faultline.jobs")
    nothing.options(idempotency_key="k").enqueue(number=1)
    with pytest.raises(IdempotencyConflict):
        nothing.options(idempotency_key="k").enqueue(number=2)

    first, second, refused = recorded.wait_for("enqueue default", 3)
    assert attributes(first)["faultline.existing"] is False
    assert attributes(second)["faultline.existing"] is True
    assert refused.status.status_code is StatusCode.ERROR
    assert attributes(refused)["error.type"] == "idempotency_conflict"
    assert carried == value(conn, "SELECT trace_context FROM faultline.jobs")


def test_a_job_without_a_trace_context_begins_a_trace(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    @app.task(name="nothing")
    async def nothing(job: Job) -> None:
        return None

    conn.execute("SELECT faultline.enqueue('nothing')")
    with working(app):
        execute = recorded.one("execute default")
    assert parent_id(execute) is None
    assert links(execute) == {"claim": span_id(recorded.one("claim default"))}


def test_the_state_of_a_trace_travels_with_it(app: Faultline, recorded: Recorded) -> None:
    """Also through a process that does not trace and only has the caller's headers."""
    caller = from_headers(f"00-{'a' * 32}-{'b' * 16}-01", "vendor=opaque")

    @app.task()
    async def nothing(job: Job) -> None:
        return None

    with tracing.enqueueing("nothing", "default", parent=caller) as span:
        assert span.carrier is not None
        carried = span.carrier
    assert carried.startswith(f"00-{'a' * 32}-")
    assert carried.endswith("\nvendor=opaque")
    assert parent_id(recorded.one("enqueue default")) == int("b" * 16, 16)
    tracing.use(None)
    with tracing.enqueueing("nothing", "default", parent=caller) as untraced:
        assert untraced.carrier == caller


def test_a_claim_that_finds_nothing_leaves_no_span(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    claimed = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'faultline worker' AND state = 'idle' AND query ~ 'faultline.claim'"
    )

    @app.task(queue="busy")
    async def nothing(job: Job) -> None:
        return None

    with working(app, queues=("idle", "busy"), poll_seconds=0.02):
        wait_until(lambda: value(conn, claimed) == 1, "a claim")
        nothing.enqueue()
        recorded.one("execute busy")
    assert len(recorded.named("claim busy")) == 1
    assert recorded.named("claim") == []


def test_no_payload_result_or_message_of_an_error_is_in_any_span(
    app: Faultline, recorded: Recorded
) -> None:
    @app.task(name="works", queue="works")
    async def works(job: Job, word: str) -> str:
        with recorded.tracer.start_as_current_span("inside"):
            return word

    @app.task(name="fails", queue="fails", max_attempts=1)
    async def fails(job: Job, word: str) -> None:
        async with job.transaction() as tx:
            await tx.execute("SELECT %s::int", [word])

    works.enqueue(word=SECRET)
    fails.enqueue(word=SECRET)
    works.enqueue_many([{"word": SECRET}])
    with working(app, queues=("works", "fails")):
        recorded.wait_for("execute works", 2)
        recorded.one("execute fails")
    assert attributes(recorded.one("execute fails"))["error.type"].startswith("psycopg.errors.")
    assert SECRET not in recorded.text()
