"""`faultline bench` as users run it, with a small time budget."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import conninfo, sql

from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import connect
from faultline_drills.bench import STEPS
from faultline_drills.bench.bench import prepare
from faultline_drills.servers.scratch_database import scratch_database
from tests.waiting import wait_until

RATES = {"bulk_enqueue", "single_enqueue", "drain", "drain_write"}
TIMES = {"round_trip", "commit", "commit_unflushed", "start_latency", "commit_latency", "recovery"}
LONG_BENCH = ("--seconds", "20", "--json")


class Account:
    """An account without superuser rights: everything it owns was made by the bench."""

    def __init__(self, home_url: str, *, may_create_databases: bool) -> None:
        self._admin = psycopg.connect(home_url, autocommit=True)
        self._name = f"bench_{secrets.token_hex(4)}"
        self._role = sql.Identifier(self._name)
        home = sql.Identifier(str(conninfo.conninfo_to_dict(home_url)["dbname"]))
        right = sql.SQL("CREATEDB" if may_create_databases else "NOCREATEDB")
        self._do("CREATE ROLE {} LOGIN PASSWORD 'p' {}", self._role, right)
        self._do("GRANT CREATE ON DATABASE {} TO {}", home, self._role)
        self.url = conninfo.make_conninfo(home_url, user=self._name, password="p")

    def databases(self) -> list[str]:
        query = "SELECT datname FROM pg_database WHERE datdba = %s::regrole"
        return [name for (name,) in self._admin.execute(query, [self._name])]

    def schemas(self) -> list[str]:
        """The schemas that it owns in the given database."""
        query = "SELECT nspname FROM pg_namespace WHERE nspowner = %s::regrole"
        return [name for (name,) in self._admin.execute(query, [self._name])]

    def worker(self) -> int:
        """The process id of the one worker that is registered in the bench's database."""
        return self._number_in_bench("SELECT pid FROM faultline.workers")

    def unfinished_jobs(self) -> int:
        return self._number_in_bench(
            "SELECT count(*) FROM faultline.jobs WHERE state IN ('queued', 'running')"
        )

    def remove(self) -> None:
        for name in self.databases():
            self._do("DROP DATABASE {} WITH (FORCE)", sql.Identifier(name))
        self._do("DROP OWNED BY {}", self._role)
        self._do("DROP ROLE {}", self._role)
        self._admin.close()

    def _number_in_bench(self, query: LiteralString) -> int:
        [database] = self.databases()
        with psycopg.connect(conninfo.make_conninfo(self.url, dbname=database)) as conn:
            [(number,)] = conn.execute(query).fetchall()
        return int(number)

    def _do(self, statement: str, *parts: sql.Composable) -> None:
        self._admin.execute(sql.SQL(statement).format(*parts))


@contextmanager
def removed_later(account: Account) -> Iterator[Account]:
    try:
        yield account
    finally:
        account.remove()


@pytest.fixture
def account(empty_database_url: str) -> Iterator[Account]:
    with removed_later(Account(empty_database_url, may_create_databases=True)) as made:
        yield made


@contextmanager
def bench(account: Account, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start the bench, and kill it at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "faultline", "bench", *words],
        env=os.environ | {"DATABASE_URL": account.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stop_at(process: subprocess.Popen[str], step: str) -> None:
    """Stop the bench at this step, so that it cannot finish before the test acts."""
    assert process.stderr is not None
    assert any(step in line for line in process.stderr), f"the bench ended before {step!r}"
    process.send_signal(signal.SIGSTOP)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def check(measurements: dict[str, Any]) -> None:
    assert set(measurements) == RATES | TIMES
    for name in RATES:
        measurement = measurements[name]
        assert measurement["n"] > 0
        assert len(measurement["repeats"]) == 3
        assert (
            0 < min(measurement["repeats"]) <= measurement["median"] <= max(measurement["repeats"])
        )
    for name in TIMES:
        measurement = measurements[name]
        assert measurement["n"] >= len(measurement["repeats"]) > 0
        assert 0 < measurement["p50"] <= measurement["p99"] <= measurement["max"]
        assert min(measurement["repeats"]) <= measurement["p50"] <= max(measurement["repeats"])


def check_recommendations(report: dict[str, Any]) -> None:
    tried = report["tried"]
    found = {each["name"]: each["value"] for each in report["recommendations"]}
    assert all(each["reason"].endswith(".") for each in report["recommendations"])
    for name in ("concurrency", "batch_size", "processes"):
        assert str(found[name]) in tried[name]
        assert all(rate > 0 for rate in tried[name].values())
    # Each slot that wrote has a connection, besides those of the worker itself.
    assert tried["connections"] > 1
    assert found["connections"] == found["processes"] * tried["connections"]


@pytest.mark.slow
def test_everything_is_measured_and_nothing_is_left_behind(account: Account) -> None:
    options = ["--seconds", "1", "--payload", "200", "--concurrency", "5"]
    with bench(account, *options, "--json") as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    report = json.loads(out)
    check(report["figures"])
    assert report["provenance"]["command"] == (
        "faultline bench --seconds 1 --workers 1 --concurrency 5 --payload 200 --seed 1"
    )
    assert report["warnings"] == [] or report["server"]["fsync"] == "off"
    assert len(report["interpretation"]) == 3
    check_recommendations(report)
    assert [line.split(maxsplit=1)[1] for line in err.splitlines()] == list(STEPS)
    assert account.databases() == []


def test_an_interrupted_bench_leaves_nothing_behind(account: Account) -> None:
    with bench(account, *LONG_BENCH) as process:
        stop_at(process, "start latency")
        worker = account.worker()
        os.kill(worker, signal.SIGSTOP)  # so that the bench waits for a job until it is interrupted
        process.send_signal(signal.SIGCONT)
        wait_until(account.unfinished_jobs, "a job that the bench waits for")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert not is_alive(worker)
    assert account.databases() == []


def test_without_the_right_to_create_databases_the_bench_drops_its_schemas(
    empty_database_url: str,
) -> None:
    with removed_later(Account(empty_database_url, may_create_databases=False)) as account:
        with scratch_database(account.url) as url:
            migrate(url)
            with connect(url) as conn:
                prepare(conn)
            assert (account.databases(), len(account.schemas())) == ([], 2)
        assert account.schemas() == []


@pytest.mark.slow
def test_a_dead_worker_ends_the_bench_with_an_error_and_nothing_is_left_behind(
    account: Account,
) -> None:
    with bench(account, *LONG_BENCH) as process:
        stop_at(process, "start latency")
        os.kill(account.worker(), signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "[bench_not_run] a worker ended with -9" in err
    assert "Traceback" not in err
    assert account.databases() == []
