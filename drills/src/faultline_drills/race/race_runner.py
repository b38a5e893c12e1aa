"""Runs the race step by step; each step waits for a state, not for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString
from uuid import UUID

from faultline.errors import FaultlineError
from faultline.postgres.sessions import Connection, connect
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.race.payment_task import BEHAVIOUR_VARIABLE, charge
from faultline_drills.race.race_timeline import RaceEvent

_TABLES = """
    CREATE SCHEMA race;
    CREATE TABLE race.barriers (name text PRIMARY KEY, opened_at timestamptz DEFAULT clock_timestamp());
    CREATE TABLE race.payments (
        job_id uuid, token bigint, account text, amount int, paid_at timestamptz DEFAULT clock_timestamp());
"""
# Only A's lease expires: B's outlasts the race, however busy the machine is.
_LEASE_OF_B_SECONDS = 600.0


class RaceBehaviour(StrEnum):
    """What worker A does in the middle of its job."""

    STALLS = "stalls"
    CRASHES_BEFORE_COMMIT = "crashes_before_commit"
    CRASHES_AFTER_COMMIT = "crashes_after_commit"
    STEADY = "steady"


class RaceNotRun(FaultlineError):
    """The race could not be completed, so it proves nothing."""

    code = "race_not_run"


@dataclass(frozen=True, kw_only=True)
class RaceSettings:
    lease_seconds: float = 1.0
    stall_seconds: float = 0.0  # at least; A is resumed when B has done its part
    behaviour_of_a: RaceBehaviour = RaceBehaviour.STALLS
    # B waits at a barrier until A has resumed and was refused: the newer token has not committed yet.
    wake_before_commit: bool = False
    timeout_seconds: float = 40.0


@dataclass(frozen=True)
class RaceReport:
    job_id: UUID
    events: tuple[RaceEvent, ...]
    payments: int
    ledger_count: int
    min_token: int | None
    max_token: int | None
    state: str
    rejections: int
    stray_lines: tuple[str, ...]

    @property
    def checks(self) -> dict[str, bool]:
        """The claims that must hold after a race with a stale worker."""
        return {
            "exactly one ledger entry": self.ledger_count == 1,
            "written under exactly one token": self.min_token == self.max_token is not None,
            "by a token of 2 or more: the job was taken over": (self.min_token or 0) >= 2,
            "the job has succeeded": self.state == "succeeded",
            "exactly one payment": self.payments == 1,
            "the late commit was refused, and the refusal was recorded": self.rejections == 1,
        }

    @property
    def holds(self) -> bool:
        return all(self.checks.values())


class _RaceRunner:
    def __init__(
        self,
        url: str,
        settings: RaceSettings,
        on_event: Callable[[RaceEvent], None],
        conn: Connection,
    ) -> None:
        self.url = url
        self.settings = settings
        self.conn = conn
        self.events: list[RaceEvent] = []
        self._on_event = on_event
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def record(self, worker: str, event: str, fields: dict[str, object] | None = None) -> None:
        with self._lock:
            recorded = RaceEvent(time.monotonic() - self._began, worker, event, dict(fields or {}))
            self.events.append(recorded)
            self._on_event(recorded)

    def start(self, name: str, behaviour: str, *, lease_seconds: float) -> ObservedProcess:
        options = ["--max-jobs", "1", "--concurrency", "1", "--poll-seconds", "0.1"]
        options += ["--lease-seconds", str(lease_seconds), "--no-self-fencing"]
        return ObservedProcess(
            name,
            app="faultline_drills.race.payment_task:app",
            url=self.url,
            options=options,
            environment={BEHAVIOUR_VARIABLE: behaviour},
            on_event=self.record,
        )

    def wait_until(
        self, query: LiteralString, what: str, process: ObservedProcess | None = None
    ) -> None:
        """Poll the database until `query` returns a row."""
        self._wait_for(lambda: self.conn.execute(query).fetchone() is not None, what, process)

    def wait_until_stopped(self, process: ObservedProcess) -> None:
        """Wait until the process is stopped.

        A opens its barrier before it stops itself; a SIGCONT sent in between would be lost.
        """
        self._wait_for(lambda: process.is_stopped, f"{process.name}'s stall", process)

    def wait_for_event(self, process: ObservedProcess, event: str) -> None:
        """Wait until the event is recorded: the process wrote it earlier than it is read."""
        self._wait_for(
            lambda: any(
                (recorded.worker, recorded.event) == (process.name, event)
                for recorded in tuple(self.events)
            ),
            f"{process.name}'s {event}",
            process,
        )

    def _wait_for(
        self, holds: Callable[[], bool], what: str, process: ObservedProcess | None
    ) -> None:
        deadline = time.monotonic() + self.settings.timeout_seconds
        while not holds():
            if process is not None and not process.is_alive:
                process.wait(self.settings.timeout_seconds)  # until all of its output was read
                if holds():  # it became true just before the process ended
                    return
                output = "\n".join(process.stray_lines[-20:]) or "nothing"
                raise RaceNotRun(f"worker {process.name} ended before {what}; its output: {output}")
            if time.monotonic() > deadline:
                raise RaceNotRun(
                    f"{what} did not happen within {self.settings.timeout_seconds:g} s"
                )
            time.sleep(0.01)


def run_race(
    url: str, settings: RaceSettings, on_event: Callable[[RaceEvent], None] = lambda event: None
) -> RaceReport:
    """Race two real worker processes for one job in the (scratch) database at `url`."""
    with ExitStack() as stack:
        conn = stack.enter_context(connect(url, application_name="faultline race"))
        conn.execute(_TABLES)
        race = _RaceRunner(url, settings, on_event, conn)
        job = charge.options(conn=conn).enqueue("alice", 100)
        race.record("-", "job_enqueued", {"job_id": str(job.job_id)})

        a = race.start("A", settings.behaviour_of_a, lease_seconds=settings.lease_seconds)
        stack.callback(a.end)
        race.wait_until("SELECT FROM race.barriers WHERE name = 'started-1'", "A's claim", a)
        race.wait_for_event(a, "lease_acquired")
        started = time.monotonic()
        if settings.behaviour_of_a is RaceBehaviour.STALLS:
            race.wait_until_stopped(a)
            race.record("A", "stalled", {"signal": "SIGSTOP"})
            behaviour = "waits" if settings.wake_before_commit else "steady"
            b = race.start("B", behaviour, lease_seconds=_LEASE_OF_B_SECONDS)
            stack.callback(b.end)
            _take_over(race, a, b, started)
        else:
            _run_to_the_end(race, a, stack)
        return _report(race, job.job_id, (*a.stray_lines,))


def _take_over(race: _RaceRunner, a: ObservedProcess, b: ObservedProcess, started: float) -> None:
    limit = race.settings.timeout_seconds
    if race.settings.wake_before_commit:
        race.wait_until("SELECT FROM race.barriers WHERE name = 'started-2'", "B's takeover", b)
    else:
        b.wait(limit)
    time.sleep(max(0.0, started + race.settings.stall_seconds - time.monotonic()))
    race.record("A", "woken", {"signal": "SIGCONT"})
    a.resume()
    a.wait(limit)
    if race.settings.wake_before_commit:
        race.conn.execute("INSERT INTO race.barriers (name) VALUES ('go')")
    b.wait(limit)


def _run_to_the_end(race: _RaceRunner, a: ObservedProcess, stack: ExitStack) -> None:
    """Let A commit, or crash before or after its commit; after a crash start B."""
    a.wait(race.settings.timeout_seconds)
    race.record("A", "gone", {"exit_code": a.exit_code})
    if race.settings.behaviour_of_a is RaceBehaviour.STEADY:
        return
    b = race.start("B", "steady", lease_seconds=_LEASE_OF_B_SECONDS)
    stack.callback(b.end)
    if race.settings.behaviour_of_a is RaceBehaviour.CRASHES_AFTER_COMMIT:
        # Once B has recorded the loss of A, it has also looked for jobs that A left behind.
        race.wait_for_event(b, "worker_lost")
        race.wait_until("SELECT FROM faultline.workers WHERE lost_at IS NOT NULL", "A's loss", b)
    race.wait_until("SELECT FROM faultline.jobs WHERE state = 'succeeded'", "the job's end", b)


def _report(race: _RaceRunner, job_id: UUID, stray_lines: tuple[str, ...]) -> RaceReport:
    row = race.conn.execute(
        "SELECT (SELECT count(*) FROM race.payments), count(l.job_id), min(l.fencing_token),"
        " max(l.fencing_token), (SELECT state FROM faultline.jobs WHERE id = %s),"
        " (SELECT count(*) FROM faultline.rejections) FROM faultline.ledger AS l",
        [job_id],
    ).fetchone()
    assert row is not None  # noqa: S101 - an aggregate has one row
    payments, ledger_count, min_token, max_token, state, rejections = row
    return RaceReport(
        job_id=job_id,
        events=tuple(race.events),
        payments=payments,
        ledger_count=ledger_count,
        min_token=min_token,
        max_token=max_token,
        state=state,
        rejections=rejections,
        stray_lines=stray_lines,
    )
