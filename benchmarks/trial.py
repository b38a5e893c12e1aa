"""One measurement: a peer runs a workload once on a new database or empty Redis."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from benchmarks.peer import Peer
from benchmarks.processes import Deadline, PeerFailed, Program, RoleProcess, call
from benchmarks.servers import PostgresServer, Redis, database_of, vacuum_and_checkpoint
from benchmarks.turn_limits import GENEROUS, TurnLimits


@dataclass(frozen=True)
class TrialServers:
    """The servers that trials use."""

    postgres: PostgresServer
    redis: Redis | None


@dataclass(frozen=True)
class Trial:
    peer: Peer
    workload: str
    program: Program
    url: str
    jobs: int
    concurrency: int
    deadline: Deadline
    limits: TurnLimits
    count_finished: Callable[[], int]
    conn: psycopg.Connection[Any] | None  # to the peer's database; None for Redis

    def enqueue(self, task: str, jobs: int, **options: float) -> dict[str, Any]:
        """Run the role to its end; return what it printed.

        With `seconds` it stops after that time, and may have enqueued fewer jobs.
        """
        words = ["enqueue", "--task", task, "--jobs", str(jobs)]
        for name, value in options.items():
            words += [f"--{name}", f"{value:g}"]
        printed = call(self._program_with_workload, words, self.url, self.deadline)
        complete = printed.get("jobs") == jobs or ("seconds" in options and printed.get("jobs"))
        if not complete or not printed.get("seconds"):
            raise PeerFailed(f"enqueue of {jobs} jobs printed {printed}")
        return printed

    def start_worker(self) -> RoleProcess:
        words = ["work", "--concurrency", str(self.concurrency)]
        return RoleProcess(self._program_with_workload, words, self.url)

    def vacuum_and_checkpoint(self) -> None:
        if self.conn is not None:
            vacuum_and_checkpoint(self.conn)

    def count_effects(self) -> int | None:
        if self.conn is None:
            return None
        row = self.conn.execute("SELECT count(*) FROM bench_effects").fetchone()
        return int(row[0]) if row else 0

    @property
    def _program_with_workload(self) -> Program:
        """The program with the workload's name, by which some peers choose their settings."""
        environment = {**self.program.environment, "BENCH_WORKLOAD": self.workload}
        return replace(self.program, environment=environment)


@contextlib.contextmanager
def open_trial(
    servers: TrialServers,
    peer: Peer,
    program: Program,
    *,
    workload: str,
    jobs: int,
    concurrency: int,
    limits: TurnLimits = GENEROUS,
    timeout_seconds: float | None = None,
) -> Iterator[Trial]:
    """Yield a trial on an empty database that the peer has prepared."""
    deadline = Deadline(timeout_seconds or limits.timeout_seconds)
    with contextlib.ExitStack() as stack:
        if peer.broker == "redis":
            url, conn, count = _on_redis(servers, peer, program, deadline)
        else:
            url = stack.enter_context(database_of(servers.postgres, peer.name))
            conn = stack.enter_context(psycopg.connect(url, autocommit=True))
            count = _counter_in_sql(peer, conn)
        call(program, ["prepare"], url, deadline)
        yield Trial(peer, workload, program, url, jobs, concurrency, deadline, limits, count, conn)


def _counter_in_sql(peer: Peer, conn: psycopg.Connection[Any]) -> Callable[[], int]:
    assert peer.finished is not None  # noqa: S101 - checked by load_peer
    query = peer.finished.encode()

    def count() -> int:
        row = conn.execute(query).fetchone()
        return int(row[0]) if row else 0

    return count


def _on_redis(
    servers: TrialServers, peer: Peer, program: Program, deadline: Deadline
) -> tuple[str, None, Callable[[], int]]:
    redis = servers.redis
    if redis is None:
        raise PeerFailed("redis-server is not installed on this machine")
    redis.command("FLUSHALL")

    def by_command() -> int:
        return int(redis.command(*shlex.split(peer.finished or "")))

    def by_role() -> int:
        return int(call(program, ["finished"], redis.url, deadline)["finished"])

    return redis.url, None, by_command if peer.finished else by_role
