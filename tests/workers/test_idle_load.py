"""What a worker without jobs costs the server: sessions and statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from faultline import Faultline
from faultline.config import Retention, WorkerSettings
from faultline.workers.worker_process import make_worker
from tests.running import Connection, EventTap, background, value
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
    def nothing() -> None: ...

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
    def nothing() -> None: ...

    fired = "SELECT count(*) FROM faultline.jobs WHERE scheduled_for IS NOT NULL"
    with whole_workers(app):
        wait_until(lambda: value(conn, IDLE) == 1, "an idle worker")
        add(conn)
        make_due(conn)
        wait_until(lambda: value(conn, fired) >= 1, "a firing")
        wait_until(lambda: "scheduler" not in sessions(conn), "the end of its session")
