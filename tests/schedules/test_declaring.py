"""Schedules in code: the decorator, its errors, and what a worker's start writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faultline import Faultline, Job, Schedule
from faultline.errors import InvalidInput, InvalidSchedule, UnknownSchedule
from faultline.postgres.sessions import run
from faultline.statements import schedules
from tests.running import EventTap, working
from tests.waiting import wait_until

from .steps import Connection, add, field, make_due, one


@pytest.fixture
def shop(app: Faultline) -> Faultline:
    @app.schedule("0 6 * * *", tz="Europe/Berlin")
    @app.task(name="report", queue="mail")
    def report(job: Job) -> None: ...

    @app.task(name="charge")
    def charge(job: Job, invoice: int) -> None: ...

    app.schedule(charge.job(invoice=7), every=timedelta(minutes=5), name="charge-7", jitter=10)
    return app


def row(conn: Connection, name: str) -> Any:
    return conn.execute(
        "SELECT cron, every_seconds, time_zone, task, payload, queue, jitter_seconds, declared_by, revision"
        " FROM faultline.schedules WHERE name = %s",
        [name],
    ).fetchone()


def test_the_decorator_returns_the_task_and_names_the_schedule_after_it(shop: Faultline) -> None:
    assert list(shop.declared_schedules) == ["report", "charge-7"]
    assert shop.find_task("report").name == "report"
    assert shop.declared_schedules["report"].timing.time_zone == "Europe/Berlin"


def test_a_worker_writes_the_schedules_of_its_code_when_it_starts(
    shop: Faultline, conn: Connection
) -> None:
    with working(shop):
        wait_until(lambda: one(conn, "SELECT count(*) FROM faultline.workers"))
    assert row(conn, "report") == (
        *("0 6 * * *", None, "Europe/Berlin", "report", {}, "mail", 0.0, "code", 1),
    )
    assert row(conn, "charge-7") == (
        *(None, 300, "UTC", "charge", {"invoice": 7}, "default", 10.0, "code", 1),
    )


def declare(conn: Connection, app: Faultline, worker: str = "w") -> dict[str, str]:
    register = "SELECT faultline.register_worker(%s, 'host', 1, '{default}', false)"
    conn.execute(register, [worker])
    definitions = [each.definition for each in app.declared_schedules.values()]
    return dict(run(conn, schedules.declare(worker, definitions)))


def test_an_unchanged_declaration_changes_nothing(shop: Faultline, conn: Connection) -> None:
    assert declare(conn, shop) == {"charge-7": "added", "report": "added"}
    before = conn.execute("SELECT * FROM faultline.schedules ORDER BY name").fetchall()
    assert declare(conn, shop, "other") == {"charge-7": "unchanged", "report": "unchanged"}
    assert conn.execute("SELECT * FROM faultline.schedules ORDER BY name").fetchall() == before


def changed(app: Faultline, schedule: Schedule, conn: Connection) -> str:
    app._schedules = {schedule.name: schedule}
    return declare(conn, app)[schedule.name]


def test_a_change_of_the_times_counts_from_now_and_keeps_a_pause(
    app: Faultline, conn: Connection
) -> None:
    task = app.task(name="t")(lambda_handler)
    first = app.schedule(task.job(), "0 6 * * *", name="report")
    declare(conn, app)
    make_due(conn)
    conn.execute("SELECT faultline.pause_schedule('report')")
    app._schedules = {}
    second = app.schedule(task.job(), "0 7 * * *", name="report")
    assert first != second
    assert changed(app, second, conn) == "changed"
    assert field(conn, "next_fire_at") is None
    assert field(conn, "revision") == 3
    assert field(conn, "paused_at") is not None


def test_a_change_of_the_job_keeps_a_time_that_is_due(app: Faultline, conn: Connection) -> None:
    task = app.task(name="t")(lambda_handler)
    app.schedule(task.job(), "0 6 * * *", name="report")
    declare(conn, app)
    due = make_due(conn)
    app._schedules = {}
    other = app.schedule(task.options(queue="mail").job(), "0 6 * * *", name="report")
    assert changed(app, other, conn) == "changed"
    assert (field(conn, "next_fire_at"), field(conn, "queue")) == (due, "mail")


def test_an_operators_schedule_of_the_same_name_stays_as_it_is(
    shop: Faultline, conn: Connection, events: EventTap
) -> None:
    add(conn, "report")
    with working(shop):
        [event] = wait_until(lambda: events.of("schedule_refused"))
    assert event["schedule"] == "report"
    assert row(conn, "report")[3:5] == ("t", {})


def test_a_schedule_that_no_live_worker_declares_is_reported_and_can_be_removed(
    shop: Faultline, conn: Connection
) -> None:
    declare(conn, shop)
    assert run(conn, schedules.undeclared()) == []
    with pytest.raises(Exception, match="declare the schedule"):
        shop.remove_schedule("report")

    conn.execute("SELECT faultline.deregister_worker('w')")
    assert run(conn, schedules.undeclared()) == ["charge-7", "report"]
    [record, _] = shop.schedules()
    assert (record.name, record.is_undeclared) == ("charge-7", True)
    shop.remove_schedule("report")
    assert run(conn, schedules.names()) == ["charge-7"]


def test_a_handler_gets_the_planned_time(app: Faultline, conn: Connection) -> None:
    seen: list[datetime | None] = []

    @app.schedule(every=60, name="report")
    @app.task(name="t")
    def report(job: Job) -> None:
        seen.append(job.scheduled_for)

    declare(conn, app)
    planned = make_due(conn)
    job_id = app.run_schedule("report")
    with working(app):
        wait_until(lambda: len(seen) == 1)
        report.enqueue()
        wait_until(lambda: len(seen) == 2)
    assert seen[0] is not None
    assert seen[0].tzinfo is not None
    assert seen[0] > planned
    assert seen[1] is None
    assert app.get(job_id).state == "succeeded"


def lambda_handler(job: Job) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("x",), {}, InvalidSchedule),
        (("0 6 * * *",), {"tz": "Mars/Phobos"}, InvalidSchedule),
        ((), {"every": 0.5}, InvalidInput),
        ((), {"every": 1.5}, InvalidInput),
        ((), {"every": timedelta(days=9999)}, InvalidInput),
        ((), {"every": 60, "jitter": -1}, InvalidInput),
        ((), {"every": 60, "missed": "never"}, InvalidInput),
        ((), {"every": 60, "missed_limit": 0}, InvalidInput),
        ((), {"every": 60, "name": "no such name!"}, InvalidInput),
        ((), {"every": 60, "anchor": datetime(2026, 1, 1)}, InvalidInput),  # noqa: DTZ001
        (("0 6 * * *",), {"anchor": datetime(2026, 1, 1, tzinfo=UTC)}, InvalidInput),
        (("0 6 * * *",), {"every": 60}, InvalidInput),
        ((), {}, InvalidInput),
    ],
)
def test_a_wrong_definition_is_refused_where_it_is_written(
    app: Faultline, arguments: tuple[str, ...], options: dict[str, Any], error: type[Exception]
) -> None:
    task = app.task(name="t")(lambda_handler)
    with pytest.raises(error) as refusal:
        app.schedule(*arguments, **options)(task)
    assert refusal.value.code in ("invalid_schedule", "invalid_input")  # type: ignore[attr-defined]
    assert app.declared_schedules == {}


def test_two_schedules_of_one_name_are_refused(app: Faultline) -> None:
    task = app.task(name="t")(lambda_handler)
    app.schedule("0 6 * * *")(task)
    app.schedule("0 6 * * *")(task)  # the same again, as in a notebook
    with pytest.raises(InvalidInput, match="two schedules"):
        app.schedule("0 7 * * *")(task)
    app.schedule("0 7 * * *", name="later")(task)


def test_a_job_with_a_time_or_a_key_of_its_own_cannot_be_scheduled(app: Faultline) -> None:
    task = app.task(name="t")(lambda_handler)
    for job in (task.options(delay=5).job(), task.options(idempotency_key="k").job()):
        with pytest.raises(InvalidInput, match="the job of a schedule"):
            app.schedule(job, every=60)


def test_the_decorator_belongs_above_the_task(app: Faultline) -> None:
    with pytest.raises(InvalidInput, match="decorates a task"):
        app.schedule("0 6 * * *")(lambda_handler)  # type: ignore[type-var]


def test_a_task_that_needs_arguments_is_given_a_job(app: Faultline) -> None:
    @app.task(name="charge")
    def charge(job: Job, invoice: int) -> None: ...

    with pytest.raises(InvalidInput, match="invoice"):
        app.schedule("0 6 * * *")(charge)


def test_an_unknown_name_is_an_error_of_its_own(app: Faultline) -> None:
    with pytest.raises(UnknownSchedule, match="nothing"):
        app.pause_schedule("nothing")


def test_a_worker_whose_row_was_purged_declares_its_schedules_again(
    shop: Faultline, conn: Connection
) -> None:
    declaring = "SELECT count(*) FROM faultline.workers WHERE cardinality(schedules) = 2"
    with working(shop, lease_seconds=2.0):
        wait_until(lambda: one(conn, declaring))
        conn.execute("DELETE FROM faultline.workers")
        wait_until(lambda: one(conn, declaring), "its row")
