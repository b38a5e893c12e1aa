"""The check of an edit of many jobs, made before it. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

from faultline.errors import InvalidInput
from faultline.payload import encode_payload
from faultline.statements.many_jobs import JobEdit, edits_of
from faultline.statements.statement import Row, Statement

_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
CHECKED_AT_ONCE = 100  # jobs whose payloads are read at once: each may have a megabyte


class CheckedTask(Protocol):
    """What the check needs of a task, with or without batches."""

    def check_arguments(self, payload_json: str) -> None: ...


def encode_changes(changes: Mapping[str, Any], more: Mapping[str, Any] = _NO_FIELDS) -> str:
    """The fields of an edit as JSON text; raises InvalidInput."""
    text = encode_payload({**changes, **more} if isinstance(changes, Mapping) else changes)
    if not changes and not more:
        raise InvalidInput(
            "an edit of many jobs names no field", hint='give the new values: {"field": 1}'
        )
    return text


def edit_checks(
    tasks: Mapping[str, CheckedTask], job_ids: Sequence[UUID], changes: str
) -> Iterator[Statement[None]]:
    """Statements that check what the payloads would become.

    Reading one raises InvalidInput for a payload that does not fit. A job whose task is not among `tasks`
    is not checked.
    """
    if not tasks:
        return
    for start in range(0, len(job_ids), CHECKED_AT_ONCE):
        chunk = job_ids[start : start + CHECKED_AT_ONCE]
        read = edits_of(chunk, changes, tasks=list(tasks))

        def check(rows: list[Row], read: Statement[list[JobEdit]] = read) -> None:
            for edit in read.read(rows):
                _check(tasks[edit.task], edit)

        yield Statement(read.sql, read.params, check)


def _check(task: CheckedTask, edit: JobEdit) -> None:
    try:
        task.check_arguments(edit.payload)
    except InvalidInput as error:
        raise InvalidInput(f"job {edit.job_id}: {error.message}", hint=error.hint) from None
