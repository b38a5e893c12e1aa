"""The control loop of a campaign: submits jobs, replaces and resumes workers.

It replaces killed workers, resumes stopped ones after their job was finished elsewhere, and starts
the retry storms. A job that will kill or stop workers is submitted only while two others stay up: one
to take over (after two faults it runs the job in a child process, which takes a while) and one for the
other jobs. So the measured time is that of the recovery, not of starting a worker.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import LiteralString
from uuid import UUID

import psycopg

from faultline.errors import FaultlineError, IllegalTransition
from faultline.postgres.sessions import Connection, run
from faultline.statements import protocol
from faultline_drills.campaign.fault_plan import KILLS, STALLS, FaultKind, PlannedJob
from faultline_drills.clients.concurrent_sessions import ConcurrentSessions
from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.process_group import ProcessGroup
from faultline_drills.recording.history import History, Phase, Verb

_ENDED: LiteralString = "SELECT id FROM faultline.jobs WHERE state IN ('succeeded', 'failed')"
_FAILING: LiteralString = (
    "SELECT job_id FROM faultline.attempts_log WHERE outcome = 'failed' AND job_id = ANY(%s)"
)
# Without self-fencing, so that only the fence in the database is compared. One job at a time, so that
# a fault hits only the job it was planned for.
WORKER_OPTIONS = ("--no-self-fencing", "--concurrency", "1")
_SPARE_WORKERS = 2
FEWEST_WORKERS = 4  # one job may stop two of them


@dataclass(frozen=True, slots=True)
class StalledAttempt:
    """An attempt whose worker is stopped."""

    worker: ObservedProcess
    job: UUID
    token: int


class ControlLoop:
    """Runs until every job and every resumed attempt has ended."""

    def __init__(
        self,
        drill: DrillContext,
        planned: Sequence[PlannedJob],
        *,
        clients: ConcurrentSessions,
        submit: Callable[[PlannedJob], UUID],
        on_progress: Callable[[int], None],
    ) -> None:
        self.injected: Counter[FaultKind] = Counter()
        self.jobs: dict[UUID, PlannedJob] = {}  # submitted so far
        self._drill = drill
        self._waiting = deque(planned)
        self._clients = clients
        self._submit = submit
        self._on_progress = on_progress
        self._stalled: dict[str, StalledAttempt] = {}  # by worker
        self._resumed: list[
            StalledAttempt
        ] = []  # attempts of resumed workers that have not ended yet
        self._faults_ahead = 0  # kills and stops that submitted jobs will still cause
        self._storms_ahead: list[
            UUID
        ] = []  # jobs whose retry storm starts after their first failure
        kills = sum(job.fault in KILLS for job in planned)
        self._starts_left = drill.settings.workers + kills
        self._workers = ProcessGroup(
            [self._start] * drill.settings.workers, on_end=self._record_kill
        )

    def run(self) -> None:
        self._drill.wait_until(self._is_over, "the end of the campaign")

    def _is_over(self) -> bool:
        """Run one pass of the loop; return whether the campaign is over."""
        self._submit_jobs()
        ended = {row[0] for row in self._drill.query(_ENDED)}
        self._workers.replace_ended()
        for worker in self._workers.members:
            self._check_worker(worker, ended)
        self._resumed = [late for late in self._resumed if not _has_ended(late)]
        self._start_storms()
        self._on_progress(len(ended))
        is_done = not self._waiting and len(ended) >= len(self.jobs)
        return is_done and not (self._stalled or self._resumed or self._storms_ahead)

    def _submit_jobs(self) -> None:
        for _ in range(len(self._waiting)):
            affected = self._waiting[0].affected_workers
            if (
                affected
                and self._available_workers() - self._faults_ahead - affected < _SPARE_WORKERS
            ):
                return
            job = self._waiting.popleft()
            job_id = self._submit(job)
            self.jobs[job_id] = job
            self._faults_ahead += affected
            if job.fault is FaultKind.RETRY_STORM:
                self._storms_ahead.append(job_id)
            elif job.fault is FaultKind.DUPLICATE_SUBMISSION:
                self.injected[job.fault] += 1

    def _available_workers(self) -> int:
        """The number of started workers that are not stopped."""
        return sum(
            worker.name not in self._stalled and bool(worker.events_named("worker_started"))
            for worker in self._workers.members
        )

    # ── workers ──────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> ObservedProcess:
        if not self._starts_left:
            raise DrillNotRun("more workers ended than the plan kills")
        self._starts_left -= 1
        return self._drill.worker(*WORKER_OPTIONS)

    def _check_worker(self, worker: ObservedProcess, ended: set[UUID]) -> None:
        if (stall := self._stalled.get(worker.name)) is not None:
            if stall.job in ended or self._is_held_elsewhere(stall):
                del self._stalled[worker.name]
                self._resumed.append(stall)
                worker.resume()
        elif worker.is_stopped:
            self._record_stall(worker)

    def _is_held_elsewhere(self, stall: StalledAttempt) -> bool:
        """Whether the worker of a later attempt at the same job is stopped, too.

        The earlier worker then resumes while the job is running under a newer token: a fence that
        only checked for `running` would let its commit through.
        """
        others = self._stalled.values()
        return any(each.job == stall.job and each.token > stall.token for each in others)

    def _record_kill(self, worker: ObservedProcess) -> None:
        held = _last_lease(worker)
        planned = None if held is None else self.jobs.get(held[0])
        if planned is None or planned.fault not in KILLS:
            raise DrillNotRun(f"a worker ended without a planned fault; {worker.recent_output()}")
        self._faults_ahead -= 1
        self.injected[planned.fault] += 1
        self._drill.inject("kill", worker.name, at_job=planned.number, by=planned.fault.value)

    def _record_stall(self, worker: ObservedProcess) -> None:
        held = _last_lease(worker)
        planned = None if held is None else self.jobs.get(held[0])
        if held is None or planned is None or planned.fault not in STALLS:
            return  # its last events are not read yet; the next pass will see them
        self._stalled[worker.name] = StalledAttempt(worker, *held)
        self._faults_ahead -= 1
        if held[1] == 1:
            self.injected[planned.fault] += 1
        self._drill.inject("stop", worker.name, at_job=planned.number, by=planned.fault.value)

    # ── retry storms ─────────────────────────────────────────────────────────────────────────────

    def _start_storms(self) -> None:
        if not self._storms_ahead:
            return
        failing = {row[0] for row in self._drill.query(_FAILING, [self._storms_ahead])}
        for job in failing:
            self._storms_ahead.remove(job)
            retry = partial(_retry, self._drill.history, job)
            answers = Counter(self._clients.run_together([retry] * len(self._clients)))
            self.injected[FaultKind.RETRY_STORM] += 1
            summary = ", ".join(f"{count} {answer}" for answer, count in sorted(answers.items()))
            self._drill.inject("retry_storm", at_job=self.jobs[job].number, answers=summary)


def _last_lease(worker: ObservedProcess) -> tuple[UUID, int] | None:
    claims = worker.events_named("lease_acquired")
    return (UUID(claims[-1]["job_id"]), int(claims[-1]["token"])) if claims else None


def _has_ended(late: StalledAttempt) -> bool:
    ended = late.worker.events_named("worker_exit", job_id=str(late.job), token=late.token)
    return bool(ended) or not late.worker.is_alive


def _retry(history: History, job: UUID, conn: Connection) -> str:
    operation = history.invoke("clients", Verb.RETRY, job=str(job))
    try:
        state = run(conn, protocol.retry(job))
    except (FaultlineError, psycopg.Error) as error:
        history.end(operation, Phase.FAIL if isinstance(error, IllegalTransition) else Phase.INFO)
        return f"refused ({getattr(error, 'code', type(error).__name__)})"
    history.end(operation, Phase.OK, state=state.value)
    return state.value
