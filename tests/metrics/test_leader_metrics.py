"""Metrics of the leading reconciler: queues, workers and losses."""

from __future__ import annotations

import signal

import pytest

from tests.limits.steps import claim_all, set_limit
from tests.metrics import jobs
from tests.metrics.scraping import Page, free_port, scrape_until
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

LEADER_ONLY = ("faultline_queue_jobs", "faultline_queue_oldest_due_seconds", "faultline_workers")


def reconciler(fleet: Fleet, name: str = "reconciler") -> tuple[Process, int]:
    port = free_port()
    command = ["reconciler", "--metrics-port", str(port)]
    return fleet._start(name, None, command), port


def leads(page: Page) -> bool:
    """It leads, and has exported its first counts."""
    return page.total("faultline_reconciler_leading") == 1 and bool(
        page.all("faultline_queue_jobs")
    )


def test_a_reconciler_shows_queues_and_workers(fleet: Fleet, database: ObservedDatabase) -> None:
    for _ in range(3):
        database.enqueue(jobs.answer, queue="waiting")
    held = database.enqueue(jobs.hold, gate="go")
    fleet.started("--no-reconciler", "--queues", "default")
    database.wait_for_state(held, "running")
    _, port = reconciler(fleet)

    page = scrape_until(
        port,
        lambda p: (
            leads(p)
            and {"waiting", "default"} <= p.labels("faultline_queue_oldest_due_seconds", "queue")
        ),
        "a leader that has counted every job",
    )
    assert page.total("faultline_queue_jobs", queue="waiting", state="due") == 3
    assert page.total("faultline_queue_jobs", queue="default", state="running") == 1
    assert page.total("faultline_queue_jobs", queue="default", state="due") == 0
    assert page.total("faultline_queue_oldest_due_seconds", queue="waiting") > 0
    assert page.total("faultline_workers", status="alive") == 1
    assert page.total("faultline_workers", status="lost") == 0
    assert not page.all("faultline_worker_seconds_total")  # it is none

    database.conn.execute("DELETE FROM faultline.jobs WHERE queue = 'waiting'")
    scrape_until(
        port,
        lambda p: (
            p.all("faultline_queue_jobs", queue="waiting", state="due").keys()
            and p.total("faultline_queue_jobs", queue="waiting") == 0
            and p.total("faultline_queue_oldest_due_seconds", queue="waiting") == 0
        ),
        "a queue that is gone still shows what it had",
    )


def test_a_reconciler_shows_limits_and_what_waits_for_them(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    set_limit(database.conn, "queue:mail", 1)
    set_limit(database.conn, "queue:other", 0)
    for _ in range(3):
        database.enqueue(jobs.answer, queue="mail")
    assert len(claim_all(database.conn, queues=["mail"])) == 1
    _, port = reconciler(fleet)
    page = scrape_until(
        port,
        lambda p: leads(p) and p.all("faultline_limit_idle_keys"),
        "a leader that has counted limits",
    )
    assert page.total("faultline_limit_jobs", limit="queue:mail", state="running") == 1
    assert page.total("faultline_limit_jobs", limit="queue:mail", state="waiting") == 2
    assert page.total("faultline_limit_jobs", limit="queue:other") == 0
    assert page.total("faultline_queue_jobs", queue="mail", state="waiting") == 2
    assert page.total("faultline_queue_jobs", queue="mail", state="scheduled") == 0
    assert page.total("faultline_limit_idle_keys") == 0

    database.conn.execute("SELECT faultline.reset_limit('queue:mail')")
    scrape_until(
        port,
        lambda p: (
            p.all("faultline_limit_jobs", limit="queue:mail").keys()
            and p.total("faultline_limit_jobs", limit="queue:mail") == 0
        ),
        "a limit that was removed still shows what it had",
    )


@pytest.mark.slow
def test_only_the_leader_exports_leader_metrics(fleet: Fleet, database: ObservedDatabase) -> None:
    database.enqueue(jobs.answer)
    first, first_port = reconciler(fleet, "first")
    scrape_until(first_port, leads, "a leading reconciler")
    second, second_port = reconciler(fleet, "second")
    waiting = scrape_until(
        second_port, lambda p: "faultline_workers" in p.families, "the second one is not up"
    )
    assert waiting.total("faultline_reconciler_leading") == 0
    assert not any(waiting.all(name) for name in LEADER_ONLY)

    first.send(signal.SIGSTOP)  # the server ends its session, and the other one leads
    scrape_until(second_port, leads, "the second one does not lead")
    first.send(signal.SIGCONT)
    page = scrape_until(
        first_port,
        lambda p: p.families and not any(p.all(name) for name in LEADER_ONLY),
        "the first one shows what it knew when it led",
    )
    assert page.total("faultline_reconciler_leading") == 0
    assert second.is_alive


@pytest.mark.slow
def test_the_leader_counts_losses_that_any_process_reconciled(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    database.enqueue(jobs.answer, queue="beside")
    _, port = reconciler(fleet)
    scrape_until(port, leads, "a leading reconciler")
    once, twice = (database.enqueue(jobs.answer, queue=queue) for queue in ("once", "twice"))
    database.conn.execute("UPDATE faultline.jobs SET max_attempts = 1 WHERE id = %s", [once])
    for queue, job_id in (("once", once), ("twice", twice)):
        # In one transaction: this very session reconciles the expired job.
        with database.conn.transaction():
            database.conn.execute("SELECT FROM faultline.claim('lost', ARRAY[%s], 1)", [queue])
            database.conn.execute(
                "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 s'"
                " WHERE id = %s",
                [job_id],
            )
            database.conn.execute(
                "SELECT FROM faultline.claim('next', ARRAY[%s], 1, '1 hour')", [queue]
            )
    cancelled = database.enqueue(jobs.answer, queue="called-off")
    database.conn.execute("SELECT faultline.cancel(%s)", [cancelled])

    page = scrape_until(
        port,
        lambda p: (
            p.total("faultline_jobs_failed_total") >= 2
            and p.total("faultline_leases_expired_total") >= 2
            and p.total("faultline_reconcile_seconds_count")
        ),
        "the poison job, the cancelled one and the two leases were not counted",
    )
    assert page.total("faultline_jobs_failed_total", queue="once", reason="poison") == 1
    assert page.total("faultline_jobs_failed_total", queue="called-off", reason="cancelled") == 1
    assert page.total("faultline_jobs_failed_total") == 2
    assert page.total("faultline_leases_expired_total") == 2


def test_a_job_of_a_killed_worker_is_taken_over_for_that_reason(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(jobs.pay, gate="never")
    victim = fleet.started("--lease-seconds", "600", name="victim")
    database.wait_for_mark(job_id)
    port = free_port()
    fleet.started("--metrics-port", str(port), name="heir")
    victim.kill()
    database.wait_for_state(job_id)
    page = scrape_until(
        port,
        lambda p: (
            p.total("faultline_recovery_seconds_count")
            and p.total("faultline_leases_taken_over_total")
        ),
        "no recovery was seen",
    )
    assert page.total("faultline_leases_taken_over_total", cause="worker_lost") == 1
    assert page.total("faultline_leases_expired_total") == 0
