"""Runs commands in this process, and puts jobs into each situation."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click
import orjson
import psycopg
import pytest
from click.testing import CliRunner

from faultline.cli.context import Context
from faultline.cli.main import cli
from faultline.errors import FaultlineError
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.postgres.url import FILE_VARIABLE, VARIABLE
from faultline.statements import protocol, workers

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    error: FaultlineError | None

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)

    def refused(self, code: str) -> FaultlineError:
        assert self.error is not None, self.out
        assert self.error.code == code
        return self.error


Faultline = Callable[..., Outcome]


def invoke(url: str | None, *words: str, app: str | None = None, stdin: Any = None) -> Outcome:
    """Run one command; an error that would be a traceback for the user is raised."""
    name, *arguments = words
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    context = Context(app_path=app, given_url=url, log_format="json", verbose=False)
    environment = {name: os.environ.get(name) for name in (VARIABLE, FILE_VARIABLE)}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # A command changes the environment for its children; `env` restores ours afterwards.
    done = CliRunner().invoke(command, arguments, obj=context, input=stdin, env=environment)
    for number, handler in handlers.items():  # a service installs its own
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    failure = done.exception
    if failure is not None and not isinstance(failure, FaultlineError | SystemExit):
        raise failure
    error = failure if isinstance(failure, FaultlineError) else None
    return Outcome(done.exit_code, done.output, error)


@pytest.fixture
def faultline(database_url: str) -> Faultline:
    def call(*words: str, **options: Any) -> Outcome:
        return invoke(database_url, *words, **options)

    return call


@pytest.fixture
def worker_session(connect: Callable[[], Connection]) -> Connection:
    """A session on which a worker is registered."""
    return connect()


class Explained:
    def __init__(self, faultline: Faultline, job_id: UUID) -> None:
        explained = faultline("why", str(job_id), "--json").json
        assert set(explained) == {"answer", "code", "facts", "advice"}
        self.code, self.answer = explained["code"], explained["answer"]
        self.facts, self.advice = explained["facts"], " ".join(explained["advice"])
        shown = faultline("why", str(job_id)).out.splitlines()
        self.first_line, self.last_line = shown[0], shown[-1]
        assert self.last_line.startswith("→ ")


# ── situations ───────────────────────────────────────────────────────────────────────────────────


def enqueue(conn: Connection, task: str = "send_mail", **options: Any) -> UUID:
    chosen = {"queue": "default", "priority": 5, "max_attempts": 5, **options}
    return run(conn, protocol.enqueue(task, {"to": "ada"}, **chosen)).job_id


def claim(conn: Connection, worker: str = "first", lease_seconds: float = 60) -> Claim:
    wanted = protocol.claim(worker, ["default"], batch_size=1, lease_seconds=lease_seconds)
    [claimed] = run(conn, wanted)
    return claimed


def register(
    conn: Connection, worker: str, *queues: str, holds_locks: bool = True, pid: int = 1
) -> None:
    """The session that registers keeps the worker alive."""
    statement = workers.register_worker(
        worker, host="host", pid=pid, queues=queues or ("default",), holds_locks=holds_locks
    )
    run(conn, statement)


def expire(conn: Connection, job_id: UUID, ago: str = "90 minutes") -> None:
    """Long enough ago that a second more does not change the printed duration."""
    conn.execute(
        "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - %s::interval"
        " WHERE id = %s",
        [ago, job_id],
    )
