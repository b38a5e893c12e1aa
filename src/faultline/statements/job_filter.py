"""The filter of jobs that lists, exports and actions on many jobs share. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

import orjson

from faultline.model import JobState


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The values that jobs must have; None allows any.

    `error` is the class of the last error: the text before its first colon. A moment `after` is part
    of the range, a moment `before` is not.
    """

    state: JobState | None = None
    queue: str | None = None
    task: str | None = None
    failed_reason: str | None = None
    error: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    ids: tuple[UUID, ...] | None = None
    tag: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it allows every job."""
        return all(getattr(self, each.name) is None for each in fields(self))

    @property
    def json(self) -> str:
        """The filter without the ids, as the SQL functions take it."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        given = {name: value for name, value in values if value is not None and name != "ids"}
        return orjson.dumps(given).decode()

    def allows(self, state: JobState) -> bool:
        """Whether a job in this state can match."""
        if self.state is not None and self.state is not state:
            return False
        if self.failed_reason is not None and state is not JobState.FAILED:
            return False
        is_finished = state in (JobState.SUCCEEDED, JobState.FAILED)
        return is_finished or self.finished_after is self.finished_before is None


_CONDITIONS: dict[str, LiteralString] = {
    "state": " AND j.state = %s",
    "queue": " AND j.queue = %s",
    "task": " AND j.task = %s",
    "tag": " AND %s = ANY (j.tags)",
    "failed_reason": " AND j.failed_reason = %s",
    "error": " AND split_part(j.last_error, ':', 1) = %s",
    "created_after": " AND j.created_at >= %s",
    "created_before": " AND j.created_at < %s",
    "finished_after": " AND j.finished_at >= %s",
    "finished_before": " AND j.finished_at < %s",
    "ids": " AND j.id = ANY (%s)",
}


def conditions(
    wanted: JobFilter, *, names: Iterable[str] | None = None, without: Iterable[str] = ()
) -> tuple[LiteralString, tuple[Any, ...]]:
    """Conditions on `faultline.jobs AS j`, each after an AND, and their values."""
    text: LiteralString = ""
    values: tuple[Any, ...] = ()
    for name in _CONDITIONS if names is None else names:
        value = getattr(wanted, name)
        if value is not None and name not in without:
            text += _CONDITIONS[name]
            values += (list(value) if name == "ids" else value,)
    return text, values
