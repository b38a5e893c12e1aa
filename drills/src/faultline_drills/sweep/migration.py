"""Trials of the migrator: after a fault, a second migration must complete it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack

import psycopg

from faultline.errors import FaultlineError
from faultline.postgres.migrate import migrate, require_fence
from faultline.postgres.sessions import Connection, connect, run
from faultline.postgres.url import environment_with
from faultline.statements import jobs, protocol
from faultline_drills.judging.checker import DrillFinding, DrillVerdict
from faultline_drills.proxy import Message, proxy_to
from faultline_drills.sweep.injector import PointInjector
from faultline_drills.sweep.point import SweepFault, SweepPoint
from faultline_drills.sweep.results import PointResult
from faultline_drills.waiting import POLL_SECONDS

_LAST_SECONDS = 5.0  # for the last messages of a process that has ended
_STOP_SECONDS = 1.0
_END_SECONDS = 10.0
# Everything that a migration creates, as text: databases with equal rows have equal schemas.
_CATALOGUE = """
    SELECT 'column', table_name || '.' || column_name,
           concat_ws(' ', data_type, column_default, is_nullable)
    FROM information_schema.columns WHERE table_schema = 'faultline'
    UNION ALL SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    FROM pg_proc AS p WHERE p.pronamespace = 'faultline'::regnamespace
    UNION ALL SELECT 'trigger', t.tgrelid::regclass || '.' || t.tgname, pg_get_triggerdef(t.oid)
    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'faultline'::regnamespace AND NOT t.tgisinternal
    UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'faultline'
    UNION ALL SELECT 'constraint', k.conrelid::regclass || '.' || k.conname,
           pg_get_constraintdef(k.oid)
    FROM pg_constraint AS k WHERE k.connamespace = 'faultline'::regnamespace
    UNION ALL SELECT 'migration', version::text, name FROM faultline.migrations
    ORDER BY 1, 2, 3
"""

# The contents of the queue, all columns, which an upgrade must not change.
_QUEUE = """
    SELECT 'job', j.id::text, j::text FROM faultline.jobs AS j
    UNION ALL SELECT 'entry', l.job_id::text, l::text FROM faultline.ledger AS l
    ORDER BY 1, 2, 3
"""
# An older schema: a function with another body, and the comment that makes an upgrade due.
_OLDER = """
    CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid)
    RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT NULL::text $$;
    COMMENT ON SCHEMA faultline IS 'functions of an older Faultline'
"""
_LONG_SECONDS = 600.0

Catalogue = list[tuple[str, ...]]


def read_catalogue(conn: Connection) -> Catalogue:
    return conn.execute(_CATALOGUE).fetchall()


def read_queue(conn: Connection) -> Catalogue:
    return conn.execute(_QUEUE).fetchall()


def leave_older(conn: Connection) -> None:
    """Make a database due for an upgrade: with a succeeded, a running, a queued job."""
    for _ in range(3):
        run(conn, protocol.enqueue("t", {}, queue="older", priority=5, max_attempts=5))
    take = protocol.claim("older", ["older"], batch_size=2, lease_seconds=_LONG_SECONDS)
    done, _ = run(conn, take)
    run(conn, protocol.commit(done))
    conn.execute(_OLDER)


class Migrator:
    """One `faultline migrate` process; its output is kept for error messages."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faultline", "migrate"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment_with(url),
            start_new_session=True,
        )
        self._output = ""

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_seconds: float) -> int:
        self._output, _ = self._process.communicate(timeout=timeout_seconds)
        return self._process.returncode

    def recent_output(self) -> str:
        return f"it ended with {self.exit_code}; its output: {self._output[-2000:]}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_END_SECONDS)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=_END_SECONDS)


class MigrationTrial:
    """Uses an empty database, or one with a queue in it, which must not change."""

    def __init__(
        self, url: str, whole: Catalogue, queue: Catalogue, *, timeout_seconds: float
    ) -> None:
        self._url = url
        self._whole = whole  # the schema that a migration without a fault creates
        self._queue = queue
        self._timeout_seconds = timeout_seconds

    def dry_run(self) -> tuple[Message, ...]:
        with ExitStack() as stack:
            proxy = stack.enter_context(proxy_to(self._url))
            migrator = self._start(stack, proxy.url)
            if migrator.wait(self._timeout_seconds) != 0:
                raise FaultlineError(
                    f"a migration without a fault failed: {migrator.recent_output()}"
                )
            return proxy.log

    def run(self, point: SweepPoint, fault: SweepFault) -> PointResult:
        began = time.monotonic()
        with ExitStack() as stack:
            proxy = stack.enter_context(proxy_to(self._url))
            injector = PointInjector(proxy, point, fault)
            victim = self._start(stack, proxy.url)
            injector.set_victim(victim)
            is_reached = self._wait_for(injector, victim)
            if fault.kills and victim.exit_code != -signal.SIGKILL:
                is_reached = False  # the process ended by itself before the kill
            found = self._second(injector, victim, fault)
        verdict = DrillVerdict.INVALID if found else DrillVerdict.VALID
        if not found and not is_reached:
            verdict = DrillVerdict.UNKNOWN
            found = [f"{point} was not reached"]
        findings = tuple(
            DrillFinding("a_second_migration_converges", sentence) for sentence in found
        )
        tally = {f"{fault.noun}s": int(is_reached), "migrations": 1}
        return PointResult(point, fault, verdict, findings, tally, time.monotonic() - began)

    def _start(self, stack: ExitStack, url: str) -> Migrator:
        migrator = Migrator(url)
        stack.callback(migrator.end)
        return migrator

    def _wait_for(self, injector: PointInjector, victim: Migrator) -> bool:
        deadline = time.monotonic() + self._timeout_seconds
        while not injector.wait(POLL_SECONDS):
            if victim.exit_code is not None or time.monotonic() > deadline:
                return injector.wait(_LAST_SECONDS)
        return True

    def _second(self, injector: PointInjector, victim: Migrator, fault: SweepFault) -> list[str]:
        """Migrate a second time, beside a stopped first one; what is wrong then."""
        try:
            if fault.stops:
                self._migrate_beside(injector)
            injector.end()
            victim.wait(self._timeout_seconds)
            migrate(self._url)
            with connect(self._url, application_name="faultline drill") as conn:
                require_fence(conn)
                found, queue = read_catalogue(conn), read_queue(conn)
                _run_a_job(conn)
        except subprocess.TimeoutExpired:
            return [f"the first migration does not end; {victim.recent_output()}"]
        except (FaultlineError, psycopg.Error) as error:
            return [f"{type(error).__name__}: {error}"]
        differing = set(found) ^ set(self._whole) | set(queue) ^ set(self._queue)
        return [f"it differs in {kind} {name}" for kind, name, *_ in sorted(differing)]

    def _migrate_beside(self, injector: PointInjector) -> None:
        """Migrate while the first one is stopped; resume that one after a second."""
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(migrate, self._url)
            wait([second], timeout=_STOP_SECONDS)
            injector.end()
            second.result(self._timeout_seconds)


def _run_a_job(conn: Connection) -> None:
    """Enqueue, claim and commit one job, to prove that the schema works."""
    with conn.transaction(force_rollback=True):
        queued = protocol.enqueue("t", {}, queue="sweep", priority=5, max_attempts=1)
        job_id = run(conn, queued).job_id
        (claim,) = run(conn, protocol.claim("by hand", ["sweep"], batch_size=1, lease_seconds=60))
        run(conn, protocol.commit(claim))
        record = run(conn, jobs.get_job(job_id))
        if record is None or record.state != "succeeded":
            raise FaultlineError(f"a job in the migrated schema did not succeed: {record}")
