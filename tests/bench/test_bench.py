"""Claims about `faultline bench` as its users run it, for real, at a tiny budget."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql

from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import connect
from faultline_drills.bench import STEPS
from faultline_drills.bench.bench import prepare
from faultline_drills.servers.scratch_database import scratch_database

RATES = {"bulk_enqueue", "single_enqueue", "drain", "drain_write"}
TIMES = {"round_trip", "commit", "commit_unflushed", "start_latency", "commit_latency", "recovery"}
LONG_ENOUGH_TO_MEDDLE = ("--seconds", "20", "--json")


class Account:
    """An account of the test's own, no superuser: what it owns is what a bench has made."""

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
        """In the database that it was given."""
        query = "SELECT nspname FROM pg_namespace WHERE nspowner = %s::regrole"
        return [name for (name,) in self._admin.execute(query, [self._name])]

    def worker(self) -> int:
        """The one process that is registered in the database in which its bench plays."""
        [played_in] = self.databases()
        url = conninfo.make_conninfo(self.url, dbname=played_in)
        with psycopg.connect(url) as conn:
            [(pid,)] = conn.execute("SELECT pid FROM faultline.workers").fetchall()
        return int(pid)

    def remove(self) -> None:
        for name in self.databases():
            self._do("DROP DATABASE {} WITH (FORCE)", sql.Identifier(name))
        self._do("DROP OWNED BY {}", self._role)
        self._do("DROP ROLE {}", self._role)
        self._admin.close()

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
    """The program, started; ended if the test has not done so."""
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


def halt_at(process: subprocess.Popen[str], step: str) -> None:
    """It stands still until it is told to go on: on a busy machine it would be done before we are."""
    assert process.stderr is not None
    assert any(step in line for line in process.stderr), f"it ended before {step!r}"
    process.send_signal(signal.SIGSTOP)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def check(figures: dict[str, Any]) -> None:
    assert set(figures) == RATES | TIMES
    for name in RATES:
        measurement = figures[name]
        assert measurement["n"] > 0
        assert len(measurement["repeats"]) == 3
        assert (
            0 < min(measurement["repeats"]) <= measurement["median"] <= max(measurement["repeats"])
        )
    for name in TIMES:
        measurement = figures[name]
        assert measurement["n"] >= len(measurement["repeats"]) > 0
        assert 0 < measurement["p50"] <= measurement["p99"] <= measurement["max"]
        assert min(measurement["repeats"]) <= measurement["p50"] <= max(measurement["repeats"])


def test_every_figure_is_measured_and_nothing_is_left_behind(account: Account) -> None:
    options = ["--seconds", "1", "--payload", "200", "--concurrency", "5"]
    with bench(account, *options, "--json") as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    told = json.loads(out)
    check(told["figures"])
    assert told["provenance"]["command"] == (
        "faultline bench --seconds 1 --workers 1 --concurrency 5 --payload 200 --seed 1"
    )
    assert told["warnings"] == [] or told["server"]["fsync"] == "off"
    assert len(told["interpretation"]) == 3
    assert [line.split(maxsplit=1)[1] for line in err.splitlines()] == list(STEPS)
    assert account.databases() == []


def test_a_bench_that_is_interrupted_leaves_nothing_behind(account: Account) -> None:
    with bench(account, *LONG_ENOUGH_TO_MEDDLE) as process:
        halt_at(process, "start latency")
        worker = account.worker()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert not is_there(worker)
    assert account.databases() == []


def test_without_the_right_to_create_databases_a_bench_leaves_no_schema_behind(
    empty_database_url: str,
) -> None:
    with removed_later(Account(empty_database_url, may_create_databases=False)) as account:
        with scratch_database(account.url) as url:
            migrate(url)
            with connect(url) as conn:
                prepare(conn)
            assert (account.databases(), len(account.schemas())) == ([], 2)
        assert account.schemas() == []


def test_a_worker_that_dies_ends_the_bench_in_words_and_leaves_nothing_behind(
    account: Account,
) -> None:
    with bench(account, *LONG_ENOUGH_TO_MEDDLE) as process:
        halt_at(process, "start latency")
        os.kill(account.worker(), signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "[bench_not_run] a worker ended with -9" in err
    assert "Traceback" not in err
    assert account.databases() == []
