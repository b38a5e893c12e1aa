"""The code and the move of procrastinate.md: each job takes effect once."""

from __future__ import annotations

import pytest

from tests.coming_from.conftest import Open
from tests.coming_from.migration import Migration
from tests.running import Connection, value
from tests.waiting import wait_until

OLD_WORKER = "procrastinate --app old_shop.app worker"
NEW_WORKER = "faultline worker --app shop:app"


@pytest.fixture
def page(open_page: Open) -> Migration:
    page = open_page("procrastinate.md")
    page.run_other("procrastinate --app old_shop.app schema --apply")
    return page


def old_jobs(conn: Connection, *statuses: str) -> int:
    query = "SELECT count(*) FROM procrastinate_jobs WHERE status::text = ANY(%s)"
    return int(value(conn, query, list(statuses)))


def test_old_workers_drain_while_new_jobs_run_on_faultline(
    page: Migration, conn: Connection
) -> None:
    page.run("python billing.py 1 11")
    page.environment["CHARGE_QUEUE"] = "faultline"
    page.run_other("python billing.py 11 21")
    assert (old_jobs(conn, "todo"), page.unfinished()) == (10, 10)
    with page.running(OLD_WORKER), page.running(NEW_WORKER):
        page.wait_until_paid(20)
        wait_until(lambda: old_jobs(conn, "todo", "doing") == 0, "the end of the old jobs")
        wait_until(lambda: page.unfinished() == 0, "the end of the new jobs")
    assert page.paid() == {n: "procrastinate" if n < 11 else "faultline" for n in range(1, 21)}
    assert old_jobs(conn, "succeeded") == 10


@pytest.mark.slow
def test_waiting_jobs_move_while_old_workers_run(page: Migration, conn: Connection) -> None:
    page.run("python billing.py 1 11")
    conn.execute(
        "UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 day' WHERE id % 2 = 0"
    )
    with page.running(OLD_WORKER):
        page.wait_until_paid(5)
        assert page.run("python move_waiting.py") == "moved 5 jobs\n"
        assert page.run("python move_waiting.py") == "moved 0 jobs\n"
    assert value(conn, "SELECT min(next_run_at) > now() + interval '23 hours' FROM faultline.jobs")
    assert (old_jobs(conn, "todo", "doing"), page.unfinished()) == (0, 5)
    assert sorted(page.paid().values()) == ["procrastinate"] * 5


@pytest.mark.slow
def test_a_stalled_job_moves_once(page: Migration, conn: Connection) -> None:
    page.run_other("python billing.py 1 2")
    job_id = value(conn, "UPDATE procrastinate_jobs SET status = 'doing' RETURNING id")
    assert page.run_other(f"python move_stalled.py {job_id}") == "moved\n"
    assert page.run_other(f"python move_stalled.py {job_id}") == ""
    assert (old_jobs(conn, "failed"), page.unfinished()) == (1, 1)


@pytest.mark.slow
def test_the_commands_to_watch_run(page: Migration) -> None:
    page.run("faultline migrate")
    page.run("python billing.py 1 11")
    query = page.command("psql").replace("$DATABASE_URL", page.environment["DATABASE_URL"])
    assert "shop.charge | todo   |    10" in page.run_other(query)
    page.run_other(f"{OLD_WORKER} --one-shot")
    assert sorted(page.paid()) == list(range(1, 11))
