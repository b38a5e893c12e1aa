"""The spans of a batch: one execute per job, and the commit in the first one's."""

from __future__ import annotations

from typing import Any

from faultline import Batch, Faultline
from tests.running import Connection, working
from tests.tracing.recorded import Recorded, attributes, links, parent_id, span_id
from tests.waiting import wait_until


def test_each_job_has_its_span_and_the_first_one_has_the_handlers(
    app: Faultline, conn: Connection, recorded: Recorded
) -> None:
    @app.batch_task(name="store", max_size=3)
    async def store(batch: Batch[dict[str, Any]]) -> None:
        with recorded.tracer.start_as_current_span("inside"):
            pass
        async with batch.transaction():
            pass

    ids = [str(store.enqueue().job_id) for _ in range(3)]
    with working(app):
        spans = recorded.wait_for("execute default", 3)
        by_job = {attributes(span)["faultline.job_id"]: span for span in spans}
        first = by_job[ids[0]]
        commit, inside = recorded.one("commit default"), recorded.one("inside")
        wait_until(lambda: len(recorded.named("enqueue default")) == 3, "the enqueues")
    assert {parent_id(span) for span in spans} == {
        span_id(span) for span in recorded.named("enqueue default")
    }
    assert all(attributes(span)["messaging.batch.message_count"] == 3 for span in spans)
    assert all(attributes(span)["faultline.outcome"] == "succeeded" for span in spans)
    assert parent_id(inside) == parent_id(commit) == span_id(first)
    assert attributes(commit)["faultline.commit"] == "transaction"
    assert "batch" in links(first)
