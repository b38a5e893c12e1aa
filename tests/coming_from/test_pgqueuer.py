"""The code and the move of pgqueuer.md: each job takes effect once."""

from __future__ import annotations

import pytest

from tests.coming_from.conftest import Open
from tests.coming_from.migration import Migration
from tests.running import Connection, value
from tests.waiting import wait_until

OLD_WORKER = "python old_shop.py"
NEW_WORKER = "faultline worker --app shop:app"


@pytest.fixture
def page(open_page: Open, database_url: str) -> Migration:
    page = open_page("pgqueuer.md", PGDSN=database_url)
    page.run_other("pgq install")
    return page


def depth(conn: Connection) -> int:
    return int(value(conn, "SELECT count(*) FROM pgqueuer"))


@pytest.mark.slow
def test_old_workers_drain_while_new_jobs_run_on_faultline(
    page: Migration, conn: Connection
) -> None:
    page.run("faultline migrate")
    page.run("python billing.py 1 11")
    page.environment["CHARGE_QUEUE"] = "faultline"
    page.run_other("python billing.py 11 21")
    assert (depth(conn), page.unfinished()) == (10, 10)
    with page.running(OLD_WORKER), page.running(NEW_WORKER):
        page.wait_until_paid(20)
        wait_until(lambda: depth(conn) == 0, "the end of the old jobs")
        wait_until(lambda: page.unfinished() == 0, "the end of the new jobs")
    assert page.paid() == {n: "pgqueuer" if n < 11 else "faultline" for n in range(1, 21)}


def test_waiting_jobs_move_while_old_workers_run(page: Migration, conn: Connection) -> None:
    page.run("python billing.py 1 11")
    conn.execute("UPDATE pgqueuer SET execute_after = now() + interval '1 day' WHERE id % 2 = 0")
    with page.running(OLD_WORKER):
        page.wait_until_paid(5)
        assert page.run("python move_waiting.py") == "moved 5 jobs\n"
        assert page.run("python move_waiting.py") == "moved 0 jobs\n"
    assert value(conn, "SELECT min(next_run_at) > now() + interval '23 hours' FROM faultline.jobs")
    assert (depth(conn), page.unfinished()) == (0, 5)
    assert sorted(page.paid().values()) == ["pgqueuer"] * 5


@pytest.mark.slow
def test_the_commands_to_watch_run(page: Migration) -> None:
    page.run("python billing.py 1 11")
    assert "10" in page.run("pgq backlog")
    page.run("pgq workers")
    page.run("pgq failed")
