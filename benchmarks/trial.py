"""One peer doing one workload once, on a database (or Redis) that is new to it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from benchmarks.peer import Peer
from benchmarks.processes import Deadline, PeerFailed, Program, RoleProcess, call
from benchmarks.servers import Redis, Server, database_of, settle


@dataclass(frozen=True)
class Stage:
    """What trials run on."""

    postgres: Server
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
    count_finished: Callable[[], int]
    conn: psycopg.Connection[Any] | None  # to the peer's database; None on Redis

    def enqueue(self, task: str, jobs: int, **options: float) -> dict[str, Any]:
        """Run the role to its end; what it printed."""
        words = ["enqueue", "--task", task, "--jobs", str(jobs)]
        for name, value in options.items():
            words += [f"--{name}", f"{value:g}"]
        said = call(self._told, words, self.url, self.deadline)
        if said.get("jobs") != jobs or not said.get("seconds"):
            raise PeerFailed(f"enqueue of {jobs} jobs printed {said}")
        return said

    def start_worker(self) -> RoleProcess:
        words = ["work", "--concurrency", str(self.concurrency)]
        return RoleProcess(self._told, words, self.url)

    def settle(self) -> None:
        if self.conn is not None:
            settle(self.conn)

    def count_effects(self) -> int | None:
        if self.conn is None:
            return None
        row = self.conn.execute("SELECT count(*) FROM bench_effects").fetchone()
        return int(row[0]) if row else 0

    @property
    def _told(self) -> Program:
        """The program, told the workload: some peers have to be set up differently for one."""
        told = {**self.program.environment, "BENCH_WORKLOAD": self.workload}
        return replace(self.program, environment=told)


@contextlib.contextmanager
def open_trial(
    stage: Stage,
    peer: Peer,
    program: Program,
    *,
    workload: str,
    jobs: int,
    concurrency: int,
    timeout_seconds: float,
) -> Iterator[Trial]:
    """A trial on an empty database, prepared by the peer itself."""
    deadline = Deadline(timeout_seconds)
    with contextlib.ExitStack() as stack:
        if peer.broker == "redis":
            url, conn, count = _on_redis(stage, peer, program, deadline)
        else:
            url = stack.enter_context(database_of(stage.postgres, peer.name))
            conn = stack.enter_context(psycopg.connect(url, autocommit=True))
            count = _counter_in_sql(peer, conn)
        call(program, ["prepare"], url, deadline)
        yield Trial(peer, workload, program, url, jobs, concurrency, deadline, count, conn)


def _counter_in_sql(peer: Peer, conn: psycopg.Connection[Any]) -> Callable[[], int]:
    assert peer.finished is not None  # noqa: S101 - load_peer has checked
    query = peer.finished.encode()

    def count() -> int:
        row = conn.execute(query).fetchone()
        return int(row[0]) if row else 0

    return count


def _on_redis(
    stage: Stage, peer: Peer, program: Program, deadline: Deadline
) -> tuple[str, None, Callable[[], int]]:
    redis = stage.redis
    if redis is None:
        raise PeerFailed("there is no redis-server on this machine")
    redis.ask("FLUSHALL")

    def by_command() -> int:
        return int(redis.ask(*shlex.split(peer.finished or "")))

    def by_role() -> int:
        return int(call(program, ["finished"], redis.url, deadline)["finished"])

    return redis.url, None, by_command if peer.finished else by_role
