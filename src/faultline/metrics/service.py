"""What an HTTP service of Faultline needs: requests and enqueues counted, and a page for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from faultline.metrics import meter
from faultline.model import Enqueued
from faultline.statements.statement import Statement

A = TypeVar("A", Enqueued, list[Enqueued])


class Exposition(NamedTuple):
    body: bytes
    content_type: str


def exposition() -> Exposition:
    """The answer to `GET /metrics`, in a process that has called `switch_on`; empty in any other."""
    return Exposition(meter.current.exposition(), "text/plain; version=0.0.4; charset=utf-8")


def record_request(*, method: str, route: str, status: int, seconds: float) -> None:
    """`route` is the template, `/jobs/{id}` and not the path; something fixed where no route matched."""
    meter.current.requested(method, route, status, seconds)


def counted(statement: Statement[A], queue: str) -> Statement[A]:
    """The same enqueue, which also counts what the database answers. Tasks do this by themselves."""
    if not meter.current.is_on:
        return statement

    def read(rows: list[tuple[Any, ...]]) -> A:
        answer: Any = statement.read(rows)  # of one enqueue, or of many
        count_enqueued(queue, [answer] if isinstance(answer, Enqueued) else answer)
        return cast(A, answer)

    return replace(statement, read=read)


def count_enqueued(queue: str, answers: Sequence[Enqueued]) -> None:
    """For who knows best when an enqueue has come about, after a transaction of several, say."""
    if meter.current.is_on:
        existing = sum(answer.existing for answer in answers)
        meter.current.enqueued(queue, queued=len(answers) - existing, existing=existing)
