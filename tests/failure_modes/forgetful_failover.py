"""A failover that loses a claim: a real primary and a standby that lags behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from faultline import embedded
from faultline.model import Claim
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from tests.conftest import TEST_SETTINGS
from tests.processes import apps
from tests.processes.observed_database import ObservedDatabase
from tests.races.stepper import claim_as
from tests.waiting import wait_until

BOUND_SECONDS = 30.0
SETTINGS = {**TEST_SETTINGS, "max_connections": "30", "wal_level": "replica"}
# Exists on both servers: created before the standby lags.
PREPARE = "CREATE TABLE steps (job_id uuid, worker text)"


@dataclass(frozen=True)
class Failover:
    """The new primary, and two claims of one job, made on the old and the new primary."""

    url: str
    database: ObservedDatabase
    zombie: Claim  # made on the old primary, not replicated
    holder: Claim  # made on the new primary


@contextmanager
def failover(home: Path, change: str | None = None) -> Iterator[Failover]:
    """Lose the primary right after a claim; `change` is SQL that weakens the queue."""
    with (
        _clusters(home) as (primary, standby),
        psycopg.connect(primary.url, autocommit=True) as old,
    ):
        ObservedDatabase.build(old)
        old.execute(PREPARE)
        if change:
            old.execute(change.encode())
        apps.pay.options(conn=old).enqueue()
        position = old.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert position is not None
        with psycopg.connect(standby.url, autocommit=True) as new:
            _fall_behind(new, position[0])
            (zombie,) = run(old, claim_as("zombie"))
            primary.kill()
            new.execute("SELECT pg_promote()")
            (holder,) = run(new, claim_as("holder"))
            yield Failover(standby.url, ObservedDatabase(new), zombie, holder)


@contextmanager
def _clusters(home: Path) -> Iterator[tuple[embedded.Server, embedded.Server]]:
    primary = embedded.Server(home / "primary", settings=SETTINGS)
    standby = embedded.Server(home / "standby", settings=SETTINGS)
    try:
        primary.start()
        migrate(primary.url)
        primary.stop()
        copy = ["cp", "-a", str(primary.data_dir), str(standby.data_dir)]  # with owners and modes
        subprocess.run(copy, check=True, timeout=BOUND_SECONDS)
        (standby.data_dir / "postmaster.opts").unlink()  # it contains the primary's port
        (standby.data_dir / "standby.signal").touch()
        primary.start()
        with (standby.data_dir / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{primary.url}'\n")
        standby.start()
        yield primary, standby
    finally:
        for server in (primary, standby):
            server.stop(mode="immediate")


def _fall_behind(standby: psycopg.Connection[Any], position: str) -> None:
    """Wait until it has replayed this position, then stop replication."""
    caught_up = "SELECT pg_last_wal_replay_lsn() >= %s"
    wait_until(lambda: standby.execute(caught_up, [position]).fetchone() == (True,))
    standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
    standby.execute("SELECT pg_reload_conf()")
    wait_until(lambda: standby.execute("SELECT FROM pg_stat_wal_receiver").fetchone() is None)
