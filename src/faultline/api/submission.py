"""A submission: what a client wants enqueued, made into the very statements that the library sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from faultline.api.body import require_depth
from faultline.api.models import JobRequest
from faultline.api.refusals import Refusal, refusal_of
from faultline.app import Faultline
from faultline.errors import FaultlineError, InvalidInput
from faultline.model import Enqueued
from faultline.payload import check_idempotency_key, encode_payload
from faultline.statements import protocol
from faultline.statements.statement import Statement
from faultline.task import TaskOptions

# Jobs that differ in nothing of this go in one statement.
Lane = tuple[str, str, int, int, datetime | None]


@dataclass(frozen=True, slots=True)
class Submission:
    task: str
    payload: dict[str, Any]
    queue: str
    priority: int
    max_attempts: int
    run_at: datetime | None
    idempotency_key: str | None

    @property
    def lane(self) -> Lane:
        return (self.task, self.queue, self.priority, self.max_attempts, self.run_at)


def submission(job: JobRequest, app: Faultline | None, *, json_depth: int) -> Submission:
    """With an application, as its task's own `enqueue` would have it: its options, its arguments."""
    options = TaskOptions()
    if app is not None:
        task = app.find_task(job.task)
        task.arguments(encode_payload(job.payload))
        options = task.options
    require_depth(job.payload, json_depth, "payload")
    return Submission(
        task=job.task,
        payload=job.payload,
        queue=options.queue if job.queue is None else job.queue,
        priority=options.priority if job.priority is None else job.priority,
        max_attempts=options.max_attempts if job.max_attempts is None else job.max_attempts,
        run_at=job.run_at,
        idempotency_key=job.idempotency_key,
    )


def read_batch(given: Sequence[Any], app: Faultline | None, *, json_depth: int) -> list[Submission]:
    """Each as if it had been sent alone; a refusal says which of them it is about."""
    wanted: list[Submission] = []
    for position, job in enumerate(given):
        try:
            wanted.append(submission(JobRequest.model_validate(job), app, json_depth=json_depth))
        except (FaultlineError, ValidationError, Refusal) as error:
            raise refusal_of(error).about(f"jobs[{position}]") from None
    return wanted


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """The jobs of one lane, by their places in the batch that they came in."""

    jobs: list[Submission]
    places: list[int]

    @property
    def queue(self) -> str:
        return self.jobs[0].queue

    @property
    def task(self) -> str:
        return self.jobs[0].task

    def statement(self, trace_context: str | None) -> Statement[list[Enqueued]]:
        keys = [job.idempotency_key for job in self.jobs]
        first = self.jobs[0]
        return protocol.enqueue_many(
            first.task,
            [job.payload for job in self.jobs],
            queue=first.queue,
            priority=first.priority,
            max_attempts=first.max_attempts,
            run_at=first.run_at,
            idempotency_keys=keys if any(key is not None for key in keys) else None,
            trace_context=trace_context,
        )


def by_lane(wanted: Sequence[Submission]) -> list[LaneOrder]:
    """In the order of the lanes, whatever the batch's: two batches seldom wait for each other then."""

    def lane(place: int) -> tuple[str, ...]:
        return tuple(map(str, wanted[place].lane))

    groups = [list(places) for _, places in groupby(sorted(range(len(wanted)), key=lane), key=lane)]
    return [LaneOrder([wanted[place] for place in places], places) for places in groups]


def agreed_key(in_body: str | None, in_headers: Sequence[str]) -> str | None:
    """The idempotency key of the body and that of the header are one; which is meant if they differ,
    nobody can know."""
    given = {check_idempotency_key(_text(header)) for header in in_headers}
    if in_body is not None:
        given.add(in_body)
    if len(given) > 1:
        raise Refusal(
            409,
            "idempotency_keys_differ",
            "two different idempotency keys were sent",
            "send one of them: in the body, or as the Idempotency-Key header",
        )
    return given.pop() if given else None


def _text(header: str) -> str:
    """Headers arrive as bytes that the server took for Latin-1; ours are UTF-8 like the body."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        raise InvalidInput("the Idempotency-Key header is not UTF-8") from None
