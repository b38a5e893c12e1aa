"""Enqueueing for a client: in one transaction, traced and counted like any other enqueue."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from faultline.api.submission import Submission, by_lane
from faultline.api.visit import Visit
from faultline.metrics import count_enqueued
from faultline.model import Enqueued
from faultline.tracing import tracing


async def enqueue(
    visit: Visit, wanted: Sequence[Submission], *, trace: str | None
) -> list[Enqueued]:
    """All or none, answered in the order of `wanted`. `trace` is where the client's own trace stands."""
    lanes = by_lane(wanted)
    with contextlib.ExitStack() as spans:
        traced = [
            spans.enter_context(
                tracing.enqueueing(lane.task, lane.queue, len(lane.jobs), parent=trace)
            )
            for lane in lanes
        ]
        statements = [
            lane.statement(span.carrier) for lane, span in zip(lanes, traced, strict=True)
        ]
        if len(statements) == 1:
            answers = [await visit.run(statements[0])]
        else:
            answers = await visit.run_together(statements)
        for span, answer in zip(traced, answers, strict=True):
            span.answered(answer[0] if len(wanted) == 1 else answer)
    placed: dict[int, Enqueued] = {}
    for lane, answer in zip(lanes, answers, strict=True):
        count_enqueued(lane.queue, answer)
        placed.update(zip(lane.places, answer, strict=True))
    return [placed[place] for place in range(len(wanted))]
