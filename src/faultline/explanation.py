"""Explains why a job is not running: which facts to read, and what they mean.

It does no I/O. `faultline why` and the inspector send the statements that `situation_of` yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from faultline.model import JobState
from faultline.statements import (
    clock,
    epochs,
    jobs,
    leadership,
    locks,
    queues,
    snoozes,
    unique_jobs,
    waiting,
    workers,
)
from faultline.statements.jobs import COUNT_LIMIT, Deferral, JobStatus
from faultline.statements.locks import LockHolder
from faultline.statements.queues import PausedQueue
from faultline.statements.snoozes import SnoozeSummary
from faultline.statements.statement import Reads, result_of
from faultline.statements.unique_jobs import UniqueJob
from faultline.statements.waiting import Wait
from faultline.statements.workers import WorkerSighting, WorkerStatus
from faultline.waiting_explanation import explain_wait
from faultline.wording import count, duration, first_line, one_line

MANY_SNOOZES = 100  # from here on `faultline why` advises to check what the job waits for


@dataclass(frozen=True, slots=True)
class Situation:
    now: datetime
    job: JobStatus
    workers: Sequence[WorkerSighting]
    is_led: bool  # a reconciler leads
    ahead: int  # due jobs of its queue that are claimed before it
    ahead_elsewhere: int  # the same in other queues of the workers that claim from its queue
    holders: Sequence[LockHolder]  # transactions that lock its row
    pause: PausedQueue | None = None  # of its queue
    deferral: Deferral | None = None  # a worker did not know its task
    snoozes: SnoozeSummary | None = None  # its last attempt was snoozed
    unique: UniqueJob | None = None
    wait: Wait | None = None  # for a limit
    was_restored: bool = False  # the database was restored, and no new epoch has begun

    @property
    def listeners(self) -> list[WorkerSighting]:
        """The live workers that claim from its queue."""
        return [
            worker
            for worker in self.workers
            if worker.status is WorkerStatus.ALIVE and self.job.queue in worker.queues
        ]

    @property
    def can_be_reconciled(self) -> bool:
        """Whether a reconciler leads, or a worker can reconcile the job when it claims.

        The reconciler of a worker behind a pooler is not visible, so such a worker counts too.
        """
        pooled = any(
            worker.status is WorkerStatus.ALIVE and not worker.holds_locks
            for worker in self.workers
        )
        return self.is_led or bool(self.listeners) or pooled

    @property
    def owner(self) -> WorkerSighting | None:
        return next((seen for seen in self.workers if seen.id == self.job.lease_owner), None)


def situation_of(job_id: UUID) -> Reads[Situation | None]:
    """Read the facts about a job; None if there is no such job."""
    job = yield from result_of(jobs.status_of(job_id))
    if job is None:
        return None
    registered = yield from result_of(workers.registry())
    shared = {
        name
        for worker in registered
        if worker.status is WorkerStatus.ALIVE and job.queue in worker.queues
        for name in worker.queues
    }
    ahead, ahead_elsewhere = 0, 0
    if job.state is JobState.QUEUED:
        counted = jobs.jobs_ahead(job_id, sorted(shared))
        ahead, ahead_elsewhere = yield from result_of(counted)
    paused = yield from result_of(queues.paused())
    return Situation(
        now=(yield from result_of(clock.database_time())),
        job=job,
        workers=registered,
        is_led=(yield from result_of(leadership.is_led())),
        ahead=ahead,
        ahead_elsewhere=ahead_elsewhere,
        pause=next((pause for pause in paused if pause.queue == job.queue), None),
        deferral=(yield from result_of(jobs.deferral_of(job_id))),
        snoozes=(yield from result_of(snoozes.snoozes_of(job_id))),
        unique=(yield from result_of(unique_jobs.of_job(job_id))),
        wait=(yield from result_of(waiting.wait_of(job_id))),
        was_restored=(yield from result_of(epochs.status())).is_refused,
        holders=(yield from locks.holders_of(job_id)),  # the last: it may lock the row
    )


@dataclass(frozen=True, slots=True)
class Answer:
    answer: str
    code: str
    facts: dict[str, Any]
    advice: list[str]


def explain(situation: Situation) -> Answer:
    match situation.job.state:
        case JobState.SUCCEEDED:
            return _succeeded(situation)
        case JobState.FAILED:
            return _failed(situation)
        case JobState.RUNNING:
            return _running(situation)
        case JobState.QUEUED:
            return _queued(situation)


def _facts(situation: Situation, **more: Any) -> dict[str, Any]:
    job = situation.job
    facts: dict[str, Any] = {
        "job": str(job.id),
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "state": job.state.value,
        "attempts": f"{job.attempts} of {job.max_attempts}",
        "fencing_token": job.fencing_token,
        "age_seconds": _seconds(job.created_at, situation.now),
        "last_error": job.last_error,
        **_unique_facts(situation.unique),
        **more,
        "locked_by": [_describe(holder) for holder in situation.holders] or None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _unique_facts(unique: UniqueJob | None) -> dict[str, Any]:
    if unique is None:
        return {}
    until = None if unique.held_until is None else unique.held_until.isoformat()
    return {
        "unique_key": unique.key,
        "unique_while": unique.while_,
        "unique_until": until,
        "counts_for_its_key": unique.counts,
        "unique_key_is_held_by": None if unique.holder is None else str(unique.holder),
    }


def _seconds(earlier: datetime, later: datetime) -> float:
    return round((later - earlier).total_seconds(), 3)


# ── it is over ───────────────────────────────────────────────────────────────────────────────────


def _succeeded(situation: Situation) -> Answer:
    finished = situation.job.finished_at or situation.now
    answer = (
        f"it succeeded {duration(_seconds(finished, situation.now))} ago"
        f" ({finished.isoformat(timespec='seconds')})"
    )
    advice = [f"faultline jobs show {situation.job.id}"]
    return Answer(answer, "succeeded", _facts(situation, finished_at=finished.isoformat()), advice)


def _failed(situation: Situation) -> Answer:
    job = situation.job
    meaning = {
        "attempts_spent": f"all {count(job.attempts, 'attempt')} failed",
        "poison": f"its worker died or went silent in attempt {job.attempts} of {job.max_attempts}",
        "rejected": "its handler rejected it",
        "cancelled": "it was cancelled",
        "token_spent": "its fencing token has reached the end of its range",
        "unreadable": "its payload is too long to be sent to a worker",
        "expired": "it had not started when it expired",
    }.get(job.failed_reason or "", f"{job.failed_reason} (attempt {job.attempts})")
    error = f"; last error: {one_line(first_line(job.last_error))}" if job.last_error else ""
    finished = job.finished_at.isoformat() if job.finished_at else None
    facts = _facts(situation, failed_reason=job.failed_reason, finished_at=finished)
    first = {
        "poison": "find out what kills the worker: memory, a crash, a call that never returns",
        "cancelled": "an operator cancelled it; ask before you retry it",
        "token_spent": "enqueue a new job: this one cannot run again",
        "unreadable": "enqueue a new job with a smaller payload: this one cannot run",
        "expired": "look why no worker started it in time: faultline queues",
    }.get(job.failed_reason or "", "fix the cause")
    advice = [first, f"to run it again: faultline jobs retry {job.id}"]
    if job.failed_reason in ("token_spent", "unreadable"):
        advice = [first]
    elif situation.unique is not None and situation.unique.holder is not None:
        holder = situation.unique.holder
        advice[1:] = [f"it cannot run again while job {holder} counts for its unique key"]
    return Answer(f"it has failed: {meaning}{error}", "failed", facts, advice)


# ── it is running ────────────────────────────────────────────────────────────────────────────────


def _running(situation: Situation) -> Answer:
    job, owner = situation.job, situation.owner
    left = _seconds(situation.now, job.lease_expires_at or situation.now)
    facts = _facts(
        situation,
        worker=job.lease_owner,
        worker_status=owner.status.value if owner else "not registered",
        last_heartbeat_seconds_ago=round(owner.silent_seconds, 3) if owner else None,
        lease_left_seconds=left,
        reconciler_leads=situation.is_led,
    )
    if left <= 0:
        return _overdue(situation, -left, facts)
    if owner and owner.blocked_seconds is not None and owner.status is not WorkerStatus.LOST:
        return _blocked(situation, owner, owner.blocked_seconds, facts)
    held = f"token {job.fencing_token}, lease valid for {duration(left)}"
    if owner and owner.status is WorkerStatus.LOST:
        answer = f"it is running for worker {owner.id}, which is gone ({held})"
        soon = "nothing to do: a reconciler leads, and requeues it at once"
        late = (
            f"nothing to do: a worker of queue {job.queue} reconciles it when its lease has run out"
        )
        return Answer(answer, "worker_lost", facts, [soon if situation.is_led else late])
    beat = f", last heartbeat {duration(owner.silent_seconds)} ago" if owner else ""
    answer = f"it is running on worker {job.lease_owner} ({held}{beat})"
    return Answer(answer, "running", facts, [f"to cancel it: faultline jobs cancel {job.id}"])


def _blocked(
    situation: Situation, owner: WorkerSighting, seconds: float, facts: dict[str, Any]
) -> Answer:
    job, frame = situation.job, one_line(owner.blocked_frame or "code that is not Python", 200)
    stack = (owner.blocked_stack or "").splitlines()
    facts |= {"blocked_frame": frame, "blocked_stack": stack}
    since = f"has been blocked for {duration(seconds)} at {frame}"
    cure = "define the blocking handler as a plain def or with process=True, or let it await"
    if owner.blocked_job == job.id:
        answer = f"its handler blocks the event loop of worker {owner.id}, which {since}"
        return Answer(answer, "loop_blocked", facts, [cure])
    by = f" by job {owner.blocked_job}" if owner.blocked_job else ""
    answer = f"it waits for the event loop of worker {owner.id}, which {since}{by}"
    later = "its lease is no longer renewed: another worker claims it when the lease has run out"
    return Answer(answer, "loop_blocked", facts, [later, cure])


def _overdue(situation: Situation, overdue: float, facts: dict[str, Any]) -> Answer:
    job = situation.job
    late = f"it is running, but its lease ran out {duration(overdue)} ago"
    if situation.holders:
        answer = f"{late}, and its row is locked by {_describe(situation.holders[0])}"
        advice = _ways_to_unlock(situation.holders)
        if any(holder.prepared_as is None for holder in situation.holders):
            advice.append(
                "to let reconcilers end sessions of frozen clients: GRANT pg_signal_backend,"
                " pg_read_all_stats TO the schema's owner"
            )
        return Answer(answer, "locked", facts, advice)
    if situation.can_be_reconciled:
        who = "a reconciler" if situation.is_led else f"a worker of queue {job.queue}"
        advice = ["if this lasts for more than seconds, read the workers' logs"]
        return Answer(f"{late}; {who} is about to reconcile it", "lease_expired", facts, advice)
    answer = f"{late}, and no reconciler or worker of queue {job.queue} is alive to reconcile it"
    return Answer(answer, "unattended", facts, [_start_a_worker(job.queue)])


# ── it waits ─────────────────────────────────────────────────────────────────────────────────────


def _queued(situation: Situation) -> Answer:
    job = situation.job
    wait = _seconds(situation.now, job.next_run_at)
    if wait > 0:
        facts = _facts(situation, due_in_seconds=wait, due_at=job.next_run_at.isoformat())
        after = f", after attempt {job.attempts} of {job.max_attempts}" if job.attempts else ""
        if situation.deferral is not None:
            return _deferred(situation, situation.deferral, wait, facts)
        if situation.snoozes is not None:
            return _snoozed(situation, situation.snoozes, wait, facts)
        answer = f"it is scheduled: due in {duration(wait)}{after}"
        return Answer(answer, "scheduled", facts, ["nothing to do"])
    facts = _facts(situation, due_for_seconds=-wait, workers=_worker_lines(situation.workers))
    if situation.was_restored:
        answer = (
            "it is due, but this database was restored and refuses claims until a new epoch begins"
        )
        advice = ["if the original is gone for good: faultline epoch bump"]
        return Answer(answer, "server_changed", facts, advice)
    if situation.pause is not None:
        return _paused(situation, situation.pause, facts)
    if situation.wait is not None:
        waits = explain_wait(situation.wait, situation.now)
        given = {name: value for name, value in waits.facts.items() if value is not None}
        return Answer(waits.answer, waits.code, facts | given, waits.advice)
    if situation.holders:
        answer = f"it is due, but its row is locked by {_describe(situation.holders[0])}"
        return Answer(answer, "locked", facts, _ways_to_unlock(situation.holders))
    if not situation.listeners:
        return _without_workers(situation, facts)
    return _waiting_for_a_slot(situation, facts)


def _snoozed(
    situation: Situation, snoozes: SnoozeSummary, wait: float, facts: dict[str, Any]
) -> Answer:
    because = f": {one_line(snoozes.reason)}" if snoozes.reason else ""
    facts |= {"snoozes": snoozes.count, "snoozed_at": snoozes.at.isoformat()}
    times = "once" if snoozes.count == 1 else f"{snoozes.count:,} times"
    answer = f"its handler snoozed it, {times} so far: due in {duration(wait)}{because}"
    advice = ["nothing to do: a snooze uses no attempt, and the handler decides how often it asks"]
    if snoozes.count >= MANY_SNOOZES:
        advice = [
            f"check what it waits for; to end it: faultline jobs cancel {situation.job.id}",
            "to bound the wait, enqueue such jobs with expires_in",
        ]
    return Answer(answer, "snoozed", facts, advice)


def _deferred(
    situation: Situation, deferral: Deferral, wait: float, facts: dict[str, Any]
) -> Answer:
    job = situation.job
    ago = duration(max(0.0, _seconds(deferral.deferred_at, situation.now)))
    facts |= {"deferred_at": deferral.deferred_at.isoformat(), "deferred_by": deferral.worker}
    answer = (
        f"it waits for a worker that knows task {job.task}: worker {deferral.worker} did not, {ago} ago;"
        f" a worker that knows it claims the job at once, others try again in {duration(wait)}"
    )
    advice = [
        f"start a worker of queue {job.queue} whose application has task {job.task}",
        f"if the task was renamed or removed, cancel the job: faultline jobs cancel {job.id}",
    ]
    return Answer(answer, "unknown_task", facts, advice)


def _paused(situation: Situation, pause: PausedQueue, facts: dict[str, Any]) -> Answer:
    since = duration(_seconds(pause.paused_at, situation.now))
    because = f": {one_line(pause.reason)}" if pause.reason else ""
    facts |= {"paused_at": pause.paused_at.isoformat(), "paused_because": pause.reason}
    answer = f"it is due, but queue {pause.queue} has been paused for {since}{because}"
    return Answer(answer, "queue_paused", facts, [f"faultline queues resume {pause.queue}"])


def _without_workers(situation: Situation, facts: dict[str, Any]) -> Answer:
    queue = situation.job.queue
    alive = [worker for worker in situation.workers if worker.status is WorkerStatus.ALIVE]
    others = sorted({name for worker in alive for name in worker.queues})
    where = f"live workers claim from {', '.join(others)}" if others else "no worker is alive"
    answer = f"it is due, but no live worker claims from queue {queue} ({where})"
    advice = [_start_a_worker(queue)]
    unable = [worker for worker in situation.workers if queue in worker.queues]
    advice += [
        f"worker {worker.id} has this queue, but is {worker.status.value}" for worker in unable
    ]
    return Answer(answer, "no_worker", facts, advice)


def _waiting_for_a_slot(situation: Situation, facts: dict[str, Any]) -> Answer:
    listeners = situation.listeners
    running = sum(worker.running for worker in listeners)
    workers = count(len(listeners), "live worker")
    work = f"busy with {count(running, 'job')}" if running else "idle"
    facts |= {"jobs_ahead": situation.ahead, "jobs_ahead_elsewhere": situation.ahead_elsewhere}
    ahead = situation.ahead + situation.ahead_elsewhere
    if not ahead:
        answer = f"it is due and next in line: {workers} of queue {situation.job.queue}, {work}"
        advice = ["nothing to do: a worker claims it as soon as one of its slots is free"]
        if not running:
            advice = ["a worker claims it at its next poll; if not, read the worker's log"]
        return Answer(answer, "next_in_line", facts, advice)
    many = f"more than {COUNT_LIMIT:,}" if ahead >= COUNT_LIMIT else f"{ahead:,}"
    answer = (
        f"it is due, but {many} due {'job is' if ahead == 1 else 'jobs are'} ahead of it"
        f" (higher priority, or due earlier); {workers}, {work}"
    )
    advice = ["wait, or add workers: faultline worker --app MODULE:NAME --concurrency N"]
    return Answer(answer, "behind_others", facts, advice)


def _worker_lines(workers: Sequence[WorkerSighting]) -> list[str]:
    return [
        f"{worker.id}: {worker.status.value}, queues {', '.join(worker.queues)},"
        f" {count(worker.running, 'job')}, last heartbeat {duration(worker.silent_seconds)} ago"
        for worker in workers
    ]


def _start_a_worker(queue: str) -> str:
    return f"start one: faultline worker --app MODULE:NAME --queues {queue}"


# ── locks ────────────────────────────────────────────────────────────────────────────────────────


def _describe(holder: LockHolder) -> str:
    since = f" for {duration(holder.seconds)}" if holder.seconds is not None else ""
    whose = f" of {holder.account}" if holder.account else ""
    if holder.prepared_as is not None:
        return f"the prepared transaction {holder.prepared_as!r}{whose}{since}"
    name = f" ({holder.application})" if holder.application else ""
    query = f", last query: {one_line(holder.query, 100)}" if holder.query else ""
    return f"session {holder.pid}{name}{whose}, {holder.state}{since}{query}"


def _ways_to_unlock(holders: Sequence[LockHolder]) -> list[str]:
    advice = []
    for holder in holders:
        if holder.prepared_as is None:
            ending = f"SELECT pg_terminate_backend({holder.pid})"
            advice.append(f"let session {holder.pid} finish, or end it: {ending}")
        else:
            gid = holder.prepared_as.replace("'", "''")
            advice.append(f"end it: COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'")
    return advice
