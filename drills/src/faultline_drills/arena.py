"""Where a scenario plays: a database of its own, worker processes, a record of everything, a settlement."""

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
from faultline_drills.chronicle import Chronicle
from faultline_drills.history import History, Phase, Verb
from faultline_drills.measures import losses
from faultline_drills.recorder import read_world
from faultline_drills.scenario import DrillSettings
from faultline_drills.sink import ADDRESS_VARIABLE, Sink
from faultline_drills.witness import Witness
from faultline_drills.workload import APP
from faultline_drills.world import Abandoned, World

POLL_SECONDS = 0.02
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
    """The drill could not be brought to its end, so it shows nothing."""

    code = "drill_not_run"


class Arena:
    """What a scenario holds. Everything it starts is gone when the drill ends."""

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
        self.chronicle = Chronicle(self.history)
        self.injected: Counter[str] = Counter()
        self.measured: dict[str, int] = {}  # what a story timed, by a name that says the unit
        self.workers: list[Witness] = []
        self.unmet: list[str] = []
        self.abandoned: list[Abandoned] = []  # by servers that others have taken the place of
        self.stack = stack
        self._server = server
        self._notify = notify
        self._conn: Connection | None = None
        self.sink = Sink()
        stack.callback(self.sink.close)
        stack.callback(self._close)

    @property
    def server(self) -> Server:
        """The server itself, to be broken: only for scenarios with `own_server`."""
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
    ) -> Witness:
        """Start a worker process (or a `reconciler`); what it says goes into the history."""
        name = name or f"{command}-{len(self.workers) + 1}"
        if command == "worker":
            # Nothing ahead: a fault is to strike the jobs that it was meant for and no others.
            pace = ("--poll-seconds", "0.1", "--claim-ahead", "0")
            options = (*pace, "--lease-seconds", str(self.settings.lease_seconds), *options)
        witness = Witness(
            name,
            app=app,
            url=url or self.url,
            options=options,
            command=command,
            environment={ADDRESS_VARIABLE: self.sink.address, **(environment or {})},
            report=self.chronicle.hear,
            on_end=self.chronicle.ended,
        )
        self.workers.append(witness)
        self.stack.callback(witness.end)
        return witness

    def started(self, *options: str, **given: Any) -> Witness:
        """Start a worker, and wait until it is registered."""
        witness = self.worker(*options, **given)
        if not witness.wait_for("worker_started", timeout_seconds=self.settings.timeout_seconds):
            raise DrillNotRun(f"a worker did not start; {witness.last_words()}")
        return witness

    def submit(self, task: Task[Any, Any], *, key: str | None = None, **arguments: Any) -> UUID:
        """Enqueue one job, as a producer would, on a connection of the arena's."""
        detail: dict[str, Any] = {} if key is None else {"key": key}
        operation = self.history.invoke("producer", Verb.SUBMIT, **detail)
        try:
            job_id = task.enqueue(**arguments, idempotency_key=key, conn=self.conn).job_id
        except IdempotencyConflict:
            self.history.end(operation, Phase.FAIL)
            raise
        except (psycopg.Error, FaultlineError):
            self.history.end(operation, Phase.INFO)
            raise
        self.history.end(operation, Phase.OK, job=str(job_id), **detail)
        return job_id

    def inject(self, kind: str, target: str = "", **detail: Any) -> None:
        """Put on record that a fault was caused; `kind` is one word for one of them: "kill".

        It is shown as it happens, and counted in the tally under its plural: "kills".
        """
        self.injected[kind] += 1
        self.history.saw(target or "nemesis", Verb.FAULT, job=None, token=None, kind=kind, **detail)
        said = " ".join([kind, target, *(f"{name}={value}" for name, value in detail.items())])
        self._notify(said.strip())

    def expect(self, holds: bool, what: str) -> None:
        """Something that the story itself promises, beside the rules that every drill is held to."""
        if not holds:
            self.unmet.append(what)

    # ── seeing ───────────────────────────────────────────────────────────────────────────────────

    @property
    def conn(self) -> Connection:
        """A session of the arena's own, made anew when the server has ended the last one."""
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(self.url, application_name="faultline drill")
        return self._conn

    def move(self, url: str) -> None:
        """From now on the arena, and whoever it starts, looks for the database there."""
        self._close()
        self.url = url

    def query(self, query: LiteralString, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows; patient while the server is away."""
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
        """How many jobs have not ended."""
        return self.count(_UNFINISHED)

    def wait_until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        by: Witness | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Wait for it, bounded; not at all when the process `by` which it must come is gone."""
        limit = timeout_seconds or self.settings.timeout_seconds
        deadline = time.monotonic() + limit
        while not condition():
            if by is not None and not by.is_alive and not condition():
                raise DrillNotRun(f"{what} can no longer happen; {by.last_words()}")
            if time.monotonic() > deadline:
                words = "\n".join(worker.last_words() for worker in self.workers[-3:])
                raise DrillNotRun(f"{what} did not happen within {limit:g} s\n{words}")
            time.sleep(POLL_SECONDS)

    def wait_for_row(self, query: LiteralString, params: Sequence[Any], what: str) -> None:
        self.wait_until(lambda: bool(self.query(query, params)), what)

    def wait_for_state(self, job_id: UUID, *states: str) -> str:
        """Wait until the job is in one of these states; which one it is."""
        query: LiteralString = "SELECT state FROM faultline.jobs WHERE id = %s"
        self.wait_until(
            lambda: self.query(query, [job_id])[0][0] in states, f"job {job_id} in {states}"
        )
        return str(self.query(query, [job_id])[0][0])

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Let everything come to its end: the stopped go on, the unfinished is finished, all leave."""
        for worker in self.workers:
            worker.resume()
        if self.unfinished():
            self.worker("--queues", ",".join(self._unfinished_queues()), name="finisher")
            self.wait_until(lambda: self.unfinished() == 0, "the end of all jobs")
        self.dismiss(self.workers)

    def _unfinished_queues(self) -> list[str]:
        queues = "SELECT DISTINCT queue FROM faultline.jobs WHERE state IN ('queued', 'running')"
        return [row[0] for row in self.conn.execute(queues)] or ["default"]

    def dismiss(self, workers: Sequence[Witness]) -> None:
        """Ask them to leave, and see to it; what they said has been heard afterwards."""
        for worker in workers:
            worker.resume()
            worker.process.terminate()
        deadline = time.monotonic() + self.settings.timeout_seconds
        for worker in workers:
            try:
                worker.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise DrillNotRun(f"a worker does not leave; {worker.last_words()}") from error

    def tally(self) -> dict[str, int]:
        """What was brought about, by name: what was injected, and what came of it."""
        said = self.chronicle.said
        return {
            **{f"{kind}s": count for kind, count in self.injected.items()},
            "commits": self.count("SELECT count(*) FROM faultline.ledger"),
            "takeovers": self.count(_TAKEOVERS),
            "stale_rejections": self.count("SELECT count(*) FROM faultline.rejections"),
            "unknown_commits": said["commit_unknown"],
            "retries": said["job_retry_scheduled"],
            "released": said["job_released"],
            "leases_lost": said["lease_lost"],
            "outages": said["database_unavailable"],
            "dead_jobs": self.count("SELECT count(*) FROM faultline.jobs WHERE state = 'failed'"),
            "outside_refusals": sum(not call.accepted for call in self.sink.calls),
            **losses(self.history, self.abandoned),
            **self.measured,
        }

    def world(self) -> World:
        return read_world(self.conn, self.sink.calls, self.abandoned)

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
