"""Actions on all jobs of a filter, one short transaction for each page. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never
from uuid import UUID

import orjson

from faultline.errors import InvalidInput
from faultline.model import JobState
from faultline.statements import job_pages
from faultline.statements.job_filter import JobFilter
from faultline.statements.job_pages import JobIdPage
from faultline.statements.statement import Row, Statement

PAGE_SIZE = 500  # jobs that one transaction changes
MAX_PAGE_SIZE = 10_000
COUNT_PAGE = 5_000
MAX_NAMED = 100  # locked and refused jobs whose ids are reported


class ManyAction(StrEnum):
    RETRY = "retry"
    CANCEL = "cancel"
    DELETE = "delete"
    EDIT = "edit"


class ActionOutcome(StrEnum):
    """What an action did to one job; sql/operating.sql explains each."""

    DONE = "done"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    LOCKED = "locked"
    GONE = "gone"


# The states that an action changes, in the order in which they are walked. Queued jobs come before
# running ones: a job that is claimed meanwhile is then found among the running.
STATES = {
    ManyAction.RETRY: (JobState.FAILED,),
    ManyAction.CANCEL: (JobState.QUEUED, JobState.RUNNING),
    ManyAction.DELETE: (JobState.QUEUED, JobState.FAILED),
    ManyAction.EDIT: (JobState.QUEUED, JobState.FAILED),
}


@dataclass(frozen=True, slots=True)
class JobOutcome:
    job_id: UUID
    outcome: ActionOutcome
    state: JobState | None  # in which the job was found; None: it does not exist


@dataclass(frozen=True, slots=True)
class ActionReport:
    """How many jobs an action changed, and why it did not change the others."""

    done: int = 0
    unchanged: int = 0  # there was nothing to do in their state
    refused: int = 0  # their state does not allow it, or another rule of the action
    locked: int = 0  # another session held their row
    gone: int = 0  # they were deleted, or stopped matching, meanwhile
    locked_ids: tuple[UUID, ...] = ()  # the first MAX_NAMED
    refused_ids: tuple[UUID, ...] = ()
    matched: int = 0  # how many jobs the action tried, or in a dry run would try

    def plus(self, outcomes: Sequence[JobOutcome]) -> ActionReport:
        counts = Counter(each.outcome for each in outcomes)
        return ActionReport(
            done=self.done + counts[ActionOutcome.DONE],
            unchanged=self.unchanged + counts[ActionOutcome.UNCHANGED],
            refused=self.refused + counts[ActionOutcome.REFUSED],
            locked=self.locked + counts[ActionOutcome.LOCKED],
            gone=self.gone + counts[ActionOutcome.GONE],
            locked_ids=_named(self.locked_ids, outcomes, ActionOutcome.LOCKED),
            refused_ids=_named(self.refused_ids, outcomes, ActionOutcome.REFUSED),
        )


def _named(
    known: tuple[UUID, ...], outcomes: Sequence[JobOutcome], outcome: ActionOutcome
) -> tuple[UUID, ...]:
    new = (each.job_id for each in outcomes if each.outcome is outcome)
    return (*known, *new)[:MAX_NAMED]


def retry_many(job_ids: Sequence[UUID], wanted: JobFilter) -> Statement[list[JobOutcome]]:
    return Statement(
        "SELECT to_jsonb(faultline.retry_many(%s::uuid[], %s::jsonb))::text",
        (list(job_ids), wanted.json),
        _outcomes,
    )


def cancel_many(
    job_ids: Sequence[UUID], wanted: JobFilter, reason: str | None = None
) -> Statement[list[JobOutcome]]:
    return Statement(
        "SELECT to_jsonb(faultline.cancel_many(%s::uuid[], %s, %s::jsonb))::text",
        (list(job_ids), reason, wanted.json),
        _outcomes,
    )


def delete_many(job_ids: Sequence[UUID], wanted: JobFilter) -> Statement[list[JobOutcome]]:
    return Statement(
        "SELECT to_jsonb(faultline.delete_many(%s::uuid[], %s::jsonb))::text",
        (list(job_ids), wanted.json),
        _outcomes,
    )


def edit_many(
    job_ids: Sequence[UUID], changes: str, wanted: JobFilter
) -> Statement[list[JobOutcome]]:
    """Merge the fields of `changes`, a JSON object, into the payloads."""
    return Statement(
        "SELECT to_jsonb(faultline.edit_many(%s::uuid[], %s::jsonb, %s::jsonb))::text",
        (list(job_ids), changes, wanted.json),
        _outcomes,
    )


@dataclass(frozen=True, slots=True)
class JobEdit:
    """A job that an edit would change, and its payload before and after, as JSON text."""

    job_id: UUID
    task: str
    queue: str
    state: JobState
    former: str
    payload: str


def edits_of(
    job_ids: Sequence[UUID], changes: str, *, tasks: Sequence[str] | None = None
) -> Statement[list[JobEdit]]:
    """What an edit would do to those jobs that are queued or failed.

    They come in the given order; with `tasks`, only jobs of these tasks.
    """
    return Statement(
        """
        SELECT j.id, j.task, j.queue, j.state, j.payload::text, (j.payload || %s::jsonb)::text
        FROM unnest(%s::uuid[]) WITH ORDINALITY AS given (id, place)
        JOIN faultline.jobs AS j ON j.id = given.id
        WHERE j.state IN ('queued', 'failed') AND (%s::text[] IS NULL OR j.task = ANY (%s::text[]))
        ORDER BY given.place
        """,
        (changes, list(job_ids), *(None if tasks is None else list(tasks),) * 2),
        lambda rows: [
            JobEdit(job_id, task, queue, JobState(state), former, payload)
            for job_id, task, queue, state, former, payload in rows
        ],
    )


def sizes_of(job_ids: Sequence[UUID]) -> Statement[dict[UUID, int]]:
    """How many bytes payload and result of each job have as text."""
    return Statement(
        """
        SELECT j.id, octet_length(j.payload::text) + coalesce(octet_length(l.result::text), 0)
        FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id
        WHERE j.id = ANY (%s::uuid[])
        """,
        (list(job_ids),),
        lambda rows: dict(rows),
    )


def _outcomes(rows: list[Row]) -> list[JobOutcome]:
    found = (orjson.loads(text) for (text,) in rows)
    return [
        JobOutcome(
            UUID(each["job_id"]),
            ActionOutcome(each["outcome"]),
            None if each["state"] is None else JobState(each["state"]),
        )
        for each in found
    ]


class JobSweep:
    """One pass over the jobs of a filter, page by page.

    A page is two statements: `page` reads the ids, and `act` changes those jobs; `advance` goes on to
    the next page. Each page takes only rows that no other session holds, so a sweep waits for no lock.
    It ends: every page begins after the last job of the one before.

    Without an action, or with ids, it walks the filter as it is. Otherwise it walks only jobs in the
    states that the action changes, each state from its own index. `reason` is of a cancellation, and
    `changes` the JSON object of an edit.
    """

    def __init__(
        self,
        wanted: JobFilter,
        action: ManyAction | None = None,
        *,
        reason: str | None = None,
        changes: str = "{}",
        page_size: int = PAGE_SIZE,
        cursor: str | None = None,
    ) -> None:
        self._action, self._reason, self._changes = action, reason, changes
        self._page_size = page_size
        self._stages = _stages(wanted, action)
        self._stage = 0
        self._after: str | None = None
        self.report = ActionReport()
        if cursor is not None:
            self._resume(cursor)

    def _resume(self, cursor: str) -> None:
        number, _, after = cursor.partition(".")
        if number not in [str(stage) for stage in range(len(self._stages))]:
            raise InvalidInput(
                "this cursor does not belong to this action",
                hint="send `next` of the previous answer, with the same filter",
            )
        self._stage, self._after = int(number), after or None

    @property
    def is_finished(self) -> bool:
        return self._stage >= len(self._stages)

    @property
    def cursor(self) -> str | None:
        """Where another sweep with the same filter continues; None at the end."""
        return None if self.is_finished else f"{self._stage}.{self._after or ''}"

    @property
    def page(self) -> Statement[JobIdPage]:
        wanted = self._stages[self._stage]
        return job_pages.id_page(wanted, limit=self._page_size, after=self._after)

    def act(self, job_ids: Sequence[UUID]) -> Statement[list[JobOutcome]]:
        wanted = self._stages[self._stage]
        match self._action:
            case ManyAction.RETRY:
                return retry_many(job_ids, wanted)
            case ManyAction.CANCEL:
                return cancel_many(job_ids, wanted, self._reason)
            case ManyAction.DELETE:
                return delete_many(job_ids, wanted)
            case ManyAction.EDIT:
                return edit_many(job_ids, self._changes, wanted)
            case None:
                raise InvalidInput("this sweep only reads")
        assert_never(self._action)

    def add(self, outcomes: list[JobOutcome]) -> None:
        self.report = self.report.plus(outcomes)

    def advance(self, page: JobIdPage) -> None:
        self._after = page.next
        if page.next is None:
            self._stage += 1


def _stages(wanted: JobFilter, action: ManyAction | None) -> tuple[JobFilter, ...]:
    if action is None or wanted.ids is not None:
        return (wanted,)
    if wanted.is_empty:
        raise InvalidInput(
            f"a filter is missing: this would {action} all jobs",
            hint="name at least a state, a queue, a task, an error, a time or ids",
        )
    states = STATES[action]
    if wanted.state is not None and wanted.state not in states:
        raise InvalidInput(
            f"{action} changes {' and '.join(states)} jobs, not {wanted.state} ones",
            hint=f"leave out the state, or give {' or '.join(states)}",
        )
    return tuple(replace(wanted, state=state) for state in states if wanted.allows(state))
