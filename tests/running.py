"""Runs a worker or another service on an event loop in a thread; waits for states."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from io import StringIO
from typing import Any
from uuid import UUID

import psycopg

from faultline import Faultline, JobRecord, JobState
from faultline.config import WorkerSettings
from faultline.events import Event
from faultline.workers import Worker
from tests.waiting import LIMIT_SECONDS, alarms, wait_until

Connection = psycopg.Connection[Any]
ENDED = (JobState.SUCCEEDED, JobState.FAILED)


class Background:
    """Runs a coroutine in a thread of its own and keeps the errors of its event loop."""

    def __init__(self, service: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._service = service
        self.complaints: list[dict[str, Any]] = []
        self.died_of: BaseException | None = None
        self.result: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)

    def check(self) -> None:
        """Raise if it has died: whatever is waited for does not come any more."""
        assert self.died_of is None, f"the service died: {self.died_of!r}"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(LIMIT_SECONDS)

    def call(self, function: Callable[[], object]) -> None:
        """Call it on the loop, if that is still there."""
        assert self.loop is not None
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function)

    def cancel(self) -> None:
        assert self._task is not None
        self.call(self._task.cancel)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), "it did not stop"

    def _run(self) -> None:
        try:
            self.result = asyncio.run(self._main())
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self.died_of = error
        finally:
            self._ready.set()

    async def _main(self) -> Any:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self._task = asyncio.ensure_future(self._service())
        self._ready.set()
        return await self._task


@contextlib.contextmanager
def background(
    service: Callable[[], Coroutine[Any, Any, Any]], *, stop: Callable[[], object] | None = None
) -> Iterator[Background]:
    """Run it until the block ends; then it must stop by itself, without an error."""
    running = Background(service)
    running.start()
    alarms.append(running.check)
    try:
        yield running
    except BaseException:
        _end(running, stop, hurry=True)
        raise
    _end(running, stop, hurry=False)
    if running.died_of is not None:
        raise AssertionError("the service died") from running.died_of
    assert running.complaints == []


def _end(running: Background, stop: Callable[[], object] | None, *, hurry: bool) -> None:
    if stop is None:
        running.cancel()
    else:
        running.call(stop)
        if hurry:
            running.call(stop)
    alarms.remove(running.check)
    running.join()


@contextlib.contextmanager
def working(
    app: Faultline, *, companions: Sequence[Any] = (), **settings: Any
) -> Iterator[Background]:
    """Runs a worker until the block ends."""
    given = {"poll_seconds": 0.2, "drain_seconds": 10.0, **settings}
    worker = Worker(app, WorkerSettings(**given), companions=companions)
    with background(worker.run, stop=worker.stop) as running:
        yield running


def work_off(app: Faultline, job_id: UUID, **settings: Any) -> JobRecord:
    """Run a worker until this job has ended, and return the job as it is then."""
    with working(app, **settings):
        return ended(app, job_id)


def ended(app: Faultline, job_id: UUID) -> JobRecord:
    def record() -> JobRecord | None:
        found = app.get(job_id)
        return found if found.state in ENDED else None

    found: JobRecord = wait_until(record, "the end of the job")
    return found


class EventTap:
    """Every event that was logged since the tap was opened."""

    def __init__(self, stream: StringIO) -> None:
        self._stream = stream

    def all(self) -> list[dict[str, Any]]:
        complete = self._stream.getvalue().rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines()]

    def of(self, event: Event | str) -> list[dict[str, Any]]:
        return [line for line in self.all() if line["event"] == event]

    def lines(self) -> list[str]:
        return self._stream.getvalue().splitlines()


# ── the database, by hand ────────────────────────────────────────────────────────────────────────


def value(conn: Connection, query: str, *params: Any) -> Any:
    row = conn.execute(query, params).fetchone()
    assert row is not None
    return row[0]


def count(conn: Connection, table: str) -> int:
    return int(value(conn, f"SELECT count(*) FROM {table}"))


def expire(conn: Connection, job_id: UUID) -> None:
    """Let the lease expire by the database's clock."""
    conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
        " WHERE id = %s",
        [job_id],
    )


def wait_for_the_first_heartbeat(conn: Connection) -> None:
    """After it, the next heartbeat is a quarter of the lease away."""
    beaten = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'faultline heartbeat'"
        " AND state = 'idle' AND query ~ 'faultline.heartbeat'"
    )
    wait_until(lambda: value(conn, beaten) == 1, "the first heartbeat")


def take_over(conn: Connection, job_id: UUID, *, queue: str = "default") -> int:
    """Expire the lease and claim the job in one transaction; returns the new token."""
    call = "SELECT job_id, fencing_token FROM faultline.claim('usurper', %s, 1, '1 hour')"
    with conn.transaction():
        expire(conn, job_id)
        row = conn.execute(call, [[queue]]).fetchone()
    assert row is not None
    assert row[0] == job_id
    return int(row[1])


def rejections(conn: Connection, job_id: UUID) -> list[tuple[Any, ...]]:
    query = "SELECT stale_token, current_token, reason FROM faultline.rejections WHERE job_id = %s"
    return conn.execute(query, [job_id]).fetchall()
