"""What a scenario works with: a database, processes, records, and waits."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, LiteralString
from uuid import UUID

import psycopg

from faultline.embedded import Server
from faultline.errors import DatabaseUnavailable, FaultlineError, IdempotencyConflict
from faultline.postgres.sessions import Connection, connect
from faultline.task import Task
from faultline_drills.judging.measures import losses
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.recording.database_state import DatabaseState, LostState
from faultline_drills.recording.history import History, Phase, Verb
from faultline_drills.recording.tables import read_database_state
from faultline_drills.recording.worker_events import WorkerEventRecorder
from faultline_drills.scenario import DrillSettings
from faultline_drills.waiting import POLL_SECONDS, wait_until
from faultline_drills.workload.external_store import ADDRESS_VARIABLE, ExternalStore
from faultline_drills.workload.tasks import APP

_UNFINISHED: LiteralString = (
    "SELECT count(*) FROM faultline.jobs WHERE state IN ('queued', 'running')"
)
# Attempts that lost their lease, of jobs that were then claimed again.
_TAKEOVERS: LiteralString = """
    SELECT count(*) FROM faultline.attempts_log AS a JOIN faultline.jobs AS j ON j.id = a.job_id
    WHERE a.outcome IN ('expired', 'worker_lost') AND j.fencing_token > a.fencing_token
"""

Notify = Callable[[str], None]


class DrillNotRun(FaultlineError):
    """The drill could not be run to its end, so it shows nothing."""

    code = "drill_not_run"


class DrillContext:
    """The database, processes and records of one drill; removed when it ends."""

    def __init__(
        self,
        url: str,
        settings: DrillSettings,
        *,
        server: Server | None,
        stack: ExitStack,
        notify: Notify = lambda line: None,
    ) -> None:
        self.url = url
        self.settings = settings
        self.random = random.Random(settings.seed)  # noqa: S311 - a drill must be repeatable
        self.history = History()
        self.worker_events = WorkerEventRecorder(self.history)
        self.injected: Counter[str] = Counter()
        self.measured: dict[str, int] = {}  # measured by the scenario; each name says its unit
        self.workers: list[ObservedProcess] = []
        self.broken_expectations: list[str] = []
        self.lost_states: list[LostState] = []  # of servers that others have replaced
        self.stack = stack
        self._server = server
        self._notify = notify
        self._conn: Connection | None = None
        self.external_store = ExternalStore()
        stack.callback(self.external_store.close)
        stack.callback(self._close)

    @property
    def server(self) -> Server:
        """The server under test, for scenarios with `own_server`, which break it."""
        if self._server is None:
            raise DrillNotRun("this scenario breaks a server, and was not given one of its own")
        return self._server

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    def worker(
        self,
        *options: str,
        name: str | None = None,
        url: str | None = None,
        environment: dict[str, str] | None = None,
        app: str = APP,
        command: str = "worker",
    ) -> ObservedProcess:
        """Start a worker process (or a `reconciler`); its events go into the history."""
        name = name or f"{command}-{len(self.workers) + 1}"
        if command == "worker":
            # No claiming ahead: a fault strikes only the jobs that it was meant for.
            pace = ("--poll-seconds", "0.1", "--claim-ahead", "0")
            options = (*pace, "--lease-seconds", str(self.settings.lease_seconds), *options)
        process = ObservedProcess(
            name,
            app=app,
            url=url or self.url,
            options=options,
            command=command,
            environment={ADDRESS_VARIABLE: self.external_store.address, **(environment or {})},
            on_event=self.worker_events.record,
            on_end=self.worker_events.process_ended,
        )
        self.workers.append(process)
        self.stack.callback(process.end)
        return process

    def started_worker(self, *options: str, **given: Any) -> ObservedProcess:
        """Start a worker, and wait until it is registered."""
        process = self.worker(*options, **given)
        if not process.has_event("worker_started", timeout_seconds=self.settings.timeout_seconds):
            raise DrillNotRun(f"a worker did not start; {process.recent_output()}")
        return process

    def submit(
        self,
        task: Task[Any, Any],
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        expires_in: float | None = None,
        **arguments: Any,
    ) -> UUID:
        """Enqueue one job on the drill's own connection, and record the submission."""
        detail: dict[str, Any] = {} if key is None else {"key": key}
        operation = self.history.invoke("producer", Verb.SUBMIT, **detail)
        try:
            configured = task.options(
                idempotency_key=key,
                queue=queue,
                priority=priority,
                expires_in=expires_in,
                conn=self.conn,
            )
            job_id = configured.enqueue(**arguments).job_id
        except IdempotencyConflict:
            self.history.end(operation, Phase.FAIL)
            raise
        except (psycopg.Error, FaultlineError):
            self.history.end(operation, Phase.INFO)
            raise
        self.history.end(operation, Phase.OK, job=str(job_id), **detail)
        return job_id

    def inject(self, kind: str, target: str = "", **detail: Any) -> None:
        """Record that a fault was caused; `kind` is a singular noun: "kill".

        The fault is shown to the user, and counted in the tally under its plural: "kills".
        """
        self.injected[kind] += 1
        self.history.record(
            target or "nemesis", Verb.FAULT, job=None, token=None, kind=kind, **detail
        )
        line = " ".join([kind, target, *(f"{name}={value}" for name, value in detail.items())])
        self._notify(line.strip())

    def expect(self, holds: bool, what: str) -> None:
        """Record a finding unless `holds`: what this scenario promises beside the rules."""
        if not holds:
            self.broken_expectations.append(what)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    @property
    def conn(self) -> Connection:
        """The drill's own session; a new one when the server has ended the last one."""
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(self.url, application_name="faultline drill")
        return self._conn

    def use_url(self, url: str) -> None:
        """Use this URL from now on, also for processes that are started later."""
        self._close()
        self.url = url

    def query(self, query: LiteralString, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows; retried while the server is unavailable, up to the drill's timeout."""
        deadline = time.monotonic() + self.settings.timeout_seconds
        while True:
            try:
                return self.conn.execute(query, params).fetchall()
            except (psycopg.OperationalError, DatabaseUnavailable):
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def count(self, query: LiteralString, params: Sequence[Any] = ()) -> int:
        """The number that the query returns."""
        return int(self.query(query, params)[0][0])

    def unfinished(self) -> int:
        """The number of jobs that are queued or running."""
        return self.count(_UNFINISHED)

    def wait_until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        by: ObservedProcess | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Wait for `condition`; DrillNotRun at the timeout, or if process `by` has ended."""
        limit = timeout_seconds or self.settings.timeout_seconds
        if wait_until(
            condition,
            timeout_seconds=limit,
            can_still_happen=lambda: by is None or by.is_alive,
        ):
            return
        if by is not None and not by.is_alive:
            raise DrillNotRun(f"{what} can no longer happen; {by.recent_output()}")
        output = "\n".join(worker.recent_output() for worker in self.workers[-3:])
        raise DrillNotRun(f"{what} did not happen within {limit:g} s\n{output}")

    def wait_for_row(self, query: LiteralString, params: Sequence[Any], what: str) -> None:
        self.wait_until(lambda: bool(self.query(query, params)), what)

    def wait_for_state(self, job_id: UUID, *states: str) -> str:
        """Wait until the job is in one of these states; the state that it is in."""
        query: LiteralString = "SELECT state FROM faultline.jobs WHERE id = %s"
        self.wait_until(
            lambda: self.query(query, [job_id])[0][0] in states, f"job {job_id} in {states}"
        )
        return str(self.query(query, [job_id])[0][0])

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    def finish_jobs(self) -> None:
        """Resume stopped workers, finish all jobs, and stop the workers."""
        for worker in self.workers:
            worker.resume()
        if self.unfinished():
            self.worker("--queues", ",".join(self._unfinished_queues()), name="finisher")
            self.wait_until(lambda: self.unfinished() == 0, "the end of all jobs")
        self.stop_workers(self.workers)

    def _unfinished_queues(self) -> list[str]:
        queues = "SELECT DISTINCT queue FROM faultline.jobs WHERE state IN ('queued', 'running')"
        return [row[0] for row in self.conn.execute(queues)] or ["default"]

    def stop_workers(self, workers: Sequence[ObservedProcess]) -> None:
        """Send SIGTERM, and wait until each has ended and its output was read.

        A worker whose jobs stop it again is resumed again.
        """
        for worker in workers:
            worker.resume()
            worker.terminate()
        deadline = time.monotonic() + self.settings.timeout_seconds
        for worker in workers:
            while worker.is_alive and time.monotonic() < deadline:
                if worker.is_stopped:
                    worker.resume()
                time.sleep(0.02)
            try:
                worker.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise DrillNotRun(f"a worker does not stop; {worker.recent_output()}") from error

    def tally(self) -> dict[str, int]:
        """Counts of the injected faults and of their consequences, by name."""
        events = self.worker_events.counts
        return {
            **{f"{kind}s": count for kind, count in self.injected.items()},
            "commits": self.count("SELECT count(*) FROM faultline.ledger"),
            "takeovers": self.count(_TAKEOVERS),
            "stale_rejections": self.count("SELECT count(*) FROM faultline.rejections"),
            "unknown_commits": events["commit_unknown"],
            "retries": events["job_retry_scheduled"],
            "released": events["job_released"],
            "leases_lost": events["lease_lost"],
            "outages": events["database_unavailable"],
            "dead_jobs": self.count("SELECT count(*) FROM faultline.jobs WHERE state = 'failed'"),
            "external_refusals": sum(not call.accepted for call in self.external_store.calls),
            **losses(self.history, self.lost_states),
            **self.measured,
        }

    def read_state(self) -> DatabaseState:
        return read_database_state(self.conn, self.external_store.calls, self.lost_states)

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
