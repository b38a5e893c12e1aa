"""What a worker without jobs costs the server: sessions and statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from faultline import Faultline, Job, JobState
from faultline.config import Retention, WorkerSettings
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.reconciler import reconciler as reconciler_module
from faultline.statements.statement import Statement
from faultline.workers import idleness
from faultline.workers.background import Wakeup
from faultline.workers.worker_process import make_worker
from tests.running import Connection, EventTap, background, ended, value
from tests.schedules.steps import add, make_due
from tests.waiting import wait_until

SESSIONS = (
    "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name LIKE 'faultline %'"
)
IDLE = "SELECT count(*) FROM faultline.idle_workers"


@contextmanager
def whole_workers(app: Faultline, count: int = 1, **settings: float) -> Iterator[None]:
    """Workers with a reconciler each, as `faultline worker` runs them."""
    with ExitStack() as stack:
        for _ in range(count):
            worker = make_worker(app, WorkerSettings(**settings), Retention())  # type: ignore[arg-type]
            stack.enter_context(background(worker.run, stop=worker.stop))
        yield


def sessions(conn: Connection) -> Counter[str]:
    return Counter(name.removeprefix("faultline ") for (name,) in conn.execute(SESSIONS))


def test_an_idle_worker_has_three_sessions_whether_it_leads_or_not(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    @app.task()
    def nothing(job: Job) -> None: ...

    with whole_workers(app, 2):
        wait_until(lambda: events.of("reconciler_leading"), "a leader")
        wait_until(lambda: value(conn, IDLE) == 2, "two idle workers")
        each = Counter(worker=2, heartbeat=2, reconciler=2)
        wait_until(lambda: sessions(conn) == each, "three sessions each")


def test_the_scheduler_has_a_session_only_while_schedules_are_due(
    app: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.reconciler.scheduler._CLOSE_SECONDS", 0.05)

    @app.task()
    def nothing(job: Job) -> None: ...

    fired = "SELECT count(*) FROM faultline.jobs WHERE scheduled_for IS NOT NULL"
    with whole_workers(app):
        wait_until(lambda: value(conn, IDLE) == 1, "an idle worker")
        add(conn)
        make_due(conn)
        wait_until(lambda: value(conn, fired) >= 1, "a firing")
        wait_until(lambda: "scheduler" not in sessions(conn), "the end of its session")


def test_a_job_for_later_starts_without_a_poll(app: Faultline, conn: Connection) -> None:
    @app.task()
    def nothing(job: Job) -> None: ...

    with whole_workers(app, poll_seconds=3600.0):
        wait_until(lambda: value(conn, IDLE) == 1, "an idle worker")
        assert ended(app, nothing.options(delay=0.2).enqueue().job_id).state is JobState.SUCCEEDED


LOOKS = 5
REGISTER = "SELECT faultline.register_worker('other', 'h', 1, '{default}', true)"


def has_equal_looks(statements: list[str]) -> bool:
    newest = statements[-LOOKS:]
    return len(newest) == LOOKS and len(set(newest)) == 1 and "vanished_workers" in newest[0]


def test_an_idle_worker_that_leads_sends_one_statement_for_each_look(
    app: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch, events: EventTap
) -> None:
    """The look sends the heartbeat too, and the worker polls five times less often."""
    monkeypatch.setattr(reconciler_module, "_ALONE_SECONDS", 0.1)
    monkeypatch.setattr(idleness, "_AGAIN_WITHOUT_LEADER_SECONDS", 0.05)
    sent: list[tuple[str, str]] = []
    original = ReconnectingSession.run

    async def run(self: ReconnectingSession, statement: Statement[Any]) -> Any:
        sent.append((self.purpose, statement.sql))
        return await original(self, statement)

    @app.task()
    def nothing(job: Job) -> None: ...

    pauses: list[float] = []
    wait = Wakeup.wait

    async def wait_and_note(self: Wakeup, timeout_seconds: float) -> None:
        pauses.append(timeout_seconds)
        await wait(self, timeout_seconds)

    def looks() -> list[str]:
        return [sql for purpose, sql in sent if purpose == "reconciler"]

    monkeypatch.setattr(Wakeup, "wait", wait_and_note)
    monkeypatch.setattr(ReconnectingSession, "run", run)
    with whole_workers(app, poll_seconds=0.1):
        wait_until(lambda: events.of("reconciler_leading"), "a leader")
        wait_until(lambda: value(conn, IDLE) == 1, "an idle worker")
        # A busy machine makes one heartbeat late now and then, and that one is sent by itself.
        wait_until(lambda: has_equal_looks(looks()), "looks of one statement each")
        wait_until(lambda: pauses[-1] > 4 * 0.1, "a longer pause between two polls")


def test_a_leader_looks_often_again_once_another_worker_has_registered(
    app: Faultline,
    conn: Connection,
    connect: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
    events: EventTap,
) -> None:
    monkeypatch.setattr(reconciler_module, "_ALONE_SECONDS", 3600.0)

    @app.task()
    def nothing(job: Job) -> None: ...

    with whole_workers(app):
        wait_until(lambda: value(conn, IDLE) == 1, "an idle worker")
        with connect() as other:
            other.execute(REGISTER)
        wait_until(lambda: events.of("worker_lost"), "the notice that its session has ended")
