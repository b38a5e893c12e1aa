"""A producer that repeats a submission under the same key when it gets no answer."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import UUID

import psycopg

from faultline.app import Faultline
from faultline.errors import FaultlineError
from faultline.postgres.reconnecting import Backoff, is_transient
from faultline.postgres.sessions import Connection, connect
from faultline.task import Task
from faultline_drills.recording.history import History, Phase, Verb

_LONGEST_PAUSE_SECONDS = 0.5


class Producer:
    """Uses one session in one thread, and records every submission in the history."""

    def __init__(self, name: str, url: str, history: History) -> None:
        self.name = name
        self.unanswered = 0  # submissions of unknown outcome, each of them repeated
        self._url = url
        self._history = history
        self._conn: Connection | None = None

    def submit(
        self,
        task: Task[Any, Any],
        *,
        key: str,
        timeout_seconds: float = 60.0,
        stop: threading.Event | None = None,
        **arguments: Any,
    ) -> UUID | None:
        """The job's id once it is acknowledged; None if `stop` is set before that."""
        deadline = time.monotonic() + timeout_seconds
        backoff = Backoff(longest=_LONGEST_PAUSE_SECONDS)
        stopped = stop or threading.Event()
        while True:
            operation = self._history.invoke(self.name, Verb.SUBMIT, key=key)
            try:
                job_id = self._enqueue(task, arguments, key)
            except (psycopg.Error, FaultlineError) as error:
                self._history.end(operation, Phase.INFO)
                if not is_transient(error) or time.monotonic() > deadline:
                    raise
                self.close()
                self.unanswered += 1
                if stopped.wait(backoff.next_pause()):
                    return None
                continue
            self._history.end(operation, Phase.OK, job=str(job_id), key=key)
            return job_id

    def _enqueue(self, task: Task[Any, Any], arguments: dict[str, Any], key: str) -> UUID:
        return task.options(idempotency_key=key, conn=self._session()).enqueue(**arguments).job_id

    def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def _session(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._url, application_name="faultline drill producer")
        return self._conn


class PooledProducer(Producer):
    """Enqueues like an application: on the library's pool, within its time limit."""

    def __init__(self, name: str, url: str, history: History, *, timeout_seconds: float) -> None:
        super().__init__(name, url, history)
        self._app = Faultline(url, enqueue_timeout_seconds=timeout_seconds)
        self.refused: list[BaseException] = []

    def _enqueue(self, task: Task[Any, Any], arguments: dict[str, Any], key: str) -> UUID:
        own = self._app.tasks.get(task.name)
        if own is None:
            own = self._app.task(name=task.name, max_attempts=task.settings.max_attempts)(
                task.handler
            )
        try:
            return own.options(idempotency_key=key).enqueue(**arguments).job_id
        except BaseException as error:
            self.refused.append(error)
            raise

    def close(self) -> None:
        """Keep the pool between two tries, as an application does."""

    def end(self) -> None:
        self._app.close()
