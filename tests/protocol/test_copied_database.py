"""A copy of a database issues no token until an operator bumps the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from faultline.statements import epochs as epochs
from faultline_drills.cluster.programs import missing_requirement, run_program
from tests.conftest import NewDatabase, url_of

from .steps import Connection, claim, claim_new, expire, refused, value


@pytest.fixture
def original(empty_database_url: str) -> Iterator[Connection]:
    """A database with one job claimed under token 1, whose lease has expired."""
    migrate(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        expire(conn, claim_new(conn))
        yield conn


def session(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


def refuses_until_the_bump(copy: Connection, *, tokens_above: int) -> None:
    with refused("FL008"):
        claim(copy)
    status = run(copy, epochs.status())
    assert status.is_refused
    assert status.known.database_oid != status.here.database_oid
    copy.execute("SELECT faultline.bump_epoch('the original is gone')")
    assert claim(copy).token > tokens_above


def test_a_copy_by_template_does_not_issue_the_next_token_of_the_original(
    original: Connection, new_database: NewDatabase
) -> None:
    name = original.info.dbname
    original.close()  # a template has no sessions
    with new_database(name) as copied:
        with session(copied) as copy:
            refuses_until_the_bump(copy, tokens_above=2)
        with session(url_of(copied, name)) as again:
            assert claim(again).token == 2


@pytest.mark.skipif(missing_requirement() is not None, reason=str(missing_requirement()))
def test_a_dump_restored_beside_its_original_does_not_issue_its_next_token(
    original: Connection, empty_database_url: str, new_database: NewDatabase
) -> None:
    version = str(original.info.server_version // 10_000)
    dump = run_program("pg_dump", url=empty_database_url, version=version)
    with new_database() as restored_url:
        options = ("--quiet", "--set", "ON_ERROR_STOP=1")
        run_program("psql", *options, url=restored_url, version=version, reads=dump)
        with session(restored_url) as restored:
            refuses_until_the_bump(restored, tokens_above=2)
    assert claim(original).token == 2


def test_a_renamed_database_stays_in_its_epoch(
    original: Connection, server_url: str, empty_database_url: str
) -> None:
    name = original.info.dbname
    original.close()
    with session(server_url) as admin:
        admin.execute(f'ALTER DATABASE "{name}" RENAME TO "{name}_renamed"'.encode())
        try:
            with session(url_of(empty_database_url, f"{name}_renamed")) as renamed:
                assert claim(renamed).token == 2
        finally:
            admin.execute(f'ALTER DATABASE "{name}_renamed" RENAME TO "{name}"'.encode())


def test_the_install_records_the_oid_of_the_database(original: Connection) -> None:
    known = "SELECT database_oid FROM faultline.epochs"
    here = "SELECT oid FROM pg_database WHERE datname = current_database()"
    assert value(original, known) == value(original, here)
