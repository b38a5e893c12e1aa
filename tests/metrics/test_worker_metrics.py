"""Metrics of real workers, compared with the database."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from faultline.metrics.catalogue import CATALOGUE, MAX_NAMES, Part
from faultline_drills.clock import missing_requirement, shifted
from tests.limits.steps import set_limit
from tests.metrics import jobs
from tests.metrics.scraping import Page, free_port, scrape, scrape_until
from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

# What runs out here is a lease that the test has run out, and no other.
LONG_LEASE = ("--lease-seconds", "600", "--heartbeat-seconds", "0.2")
# Of the first attempt alone: a worker that has claimed the job since keeps it.
EXPIRE = (
    "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
    " WHERE id = %s AND fencing_token = 1"
)
OF_WORKERS = {m.name for m in CATALOGUE if m.parts != (Part.API,)}


def worker(fleet: Fleet, *options: str, name: str = "worker") -> tuple[Process, int]:
    port = free_port()
    return fleet.started("--metrics-port", str(port), *options, name=name), port


def counts_losses(page: Page) -> bool:
    """It leads, has read the end of the log of losses, and has counted the workers."""
    return bool(page.total("faultline_reconciler_leading") and page.all("faultline_workers"))


def test_every_metric_of_the_catalogue_comes_from_a_real_run(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    """A success, retry, snooze, dead job, existing job, takeover and refused write."""
    set_limit(database.conn, "queue:default", 100)  # reached by none
    options = (*LONG_LEASE, "--no-self-fencing", "--no-reconciler")
    late, late_port = worker(fleet, *options, name="late")
    contested = database.enqueue(jobs.pay, gate="go")
    database.wait_for_mark(contested)
    scrape_until(late_port, lambda page: page.total("faultline_leases_renewed_total"), "no renewal")
    seen = scrape_until(
        late_port, lambda page: page.total("faultline_running_jobs") == 1, "nothing runs"
    ).moved()
    # It leads before the lease runs out: losses before there was a leader are not counted.
    other, port = worker(fleet, *LONG_LEASE, name="other")
    scrape_until(port, counts_losses, "a leading reconciler")
    late.send(signal.SIGSTOP)

    def is_taken_over() -> bool:
        database.conn.execute(EXPIRE, [contested])  # again: a heartbeat may have been on its way
        return database.job(contested).state == "succeeded"

    database.wait_until(is_taken_over, "no worker takes the job over")
    assert database.job(contested).attempts == 2
    retried = database.enqueue(jobs.succeed_at_last, failures=1)
    dead = database.enqueue(jobs.give_up)
    database.enqueue(jobs.report_and_snooze)
    database.enqueue(jobs.store)
    database.enqueue(jobs.enqueue_twice, into="default")
    database.conn.execute("SELECT faultline.enqueue('unheard_of')")
    database.enqueue(jobs.answer, queue="without-worker")
    database.conn.execute(
        "SELECT faultline.add_schedule(jsonb_build_object('name', 's', 'task', 'unheard_of',"
        " 'queue', 'without-worker', 'every_seconds', 1))"
    )
    database.wait_for_state(retried)
    database.wait_for_state(dead, "failed")
    left = (
        "FROM faultline.jobs WHERE queue = 'default' AND state IN ('queued', 'running')"
        " AND task <> 'unheard_of' AND next_run_at < clock_timestamp() + interval '30 minutes'"
    )
    database.wait_until(
        lambda: not database.count(left), "something is left for the late one to do"
    )
    database.conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'faultline worker'"
    )
    database.open("go")
    late.send(signal.SIGCONT)
    late.wait_for_event("stale_write_blocked", job_id=contested)

    def is_complete(page: Page) -> bool:
        seen.update(page.moved(), scrape(late_port).moved())
        # Above 0 only while the leader counts: when jobs run under the limit, or it repairs none.
        for gauge in ("faultline_limit_jobs", "faultline_limit_idle_keys"):
            if page.all(gauge):
                seen.add(gauge)
        return seen >= OF_WORKERS

    try:
        scrape_until(port, is_complete, "some are missing")
    except AssertionError:
        pytest.fail(f"missing: {OF_WORKERS - seen}")
    assert other.is_alive
    refused = scrape(late_port)
    assert refused.total("faultline_stale_write_rejected_total", reason="token_mismatch") == 1
    assert refused.total("faultline_stale_write_rejected_total") == 1
    assert refused.total("faultline_overlap_seconds_count") == 1
    assert refused.total("faultline_jobs_succeeded_total") == 0
    took = scrape(port)
    assert took.total("faultline_leases_taken_over_total", cause="expired") == 1
    assert took.total("faultline_leases_taken_over_total") == 1
    assert took.total("faultline_recovery_seconds_count") == 1
    assert took.total("faultline_jobs_retried_total", queue="default") == 1
    assert took.all("faultline_jobs_failed_total", queue="default", reason="attempts_spent") == {
        frozenset({("queue", "default"), ("reason", "attempts_spent")}): 1
    }
    enqueued = took.all("faultline_jobs_enqueued_total", queue="default")
    assert {dict(labels)["outcome"]: count for labels, count in enqueued.items()} == {
        "queued": 1,
        "existing": 1,
        "kept": 0,
        "replaced": 0,
        "rescheduled": 0,
    }


def test_labels_and_values_are_those_of_the_catalogue(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    _, port = worker(fleet)
    page = scrape_until(
        port, lambda p: p.total("faultline_reconciler_leading"), "a leading reconciler"
    )
    assert page.families == OF_WORKERS
    for metric in CATALOGUE:
        for name in (metric.name, f"{metric.name}_count"):
            for labels in map(dict, page.all(name)):
                assert labels.keys() == set(metric.labels)
                for label, known in metric.values.items():
                    assert labels[label] in known


def test_a_worker_counts_each_job_once_in_its_queue(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    # A job that is claimed ahead may be released, and would be counted as claimed again.
    _, port = worker(fleet, "--queues", "mail,billing", "--claim-ahead", "0", *LONG_LEASE)
    jobs.answer.options(conn=database.conn).enqueue_many(
        [{}] * 1_000
    )  # no worker listens to their queue
    for queue, count in (("mail", 700), ("billing", 300)):
        database.conn.execute(
            "UPDATE faultline.jobs SET queue = %s WHERE id IN"
            " (SELECT id FROM faultline.jobs WHERE queue = 'default' LIMIT %s)",
            [queue, count],
        )
    database.wait_for_all(1_000)
    by_queue = (
        "faultline_jobs_claimed_total",
        "faultline_jobs_succeeded_total",
        "faultline_execution_seconds_count",
        "faultline_end_to_end_seconds_count",
    )
    # Each is counted by itself, so that a page may have one and not yet the next.
    page = scrape_until(
        port,
        lambda p: all(p.total(name) >= 1_000 for name in by_queue),
        "not all were counted",
    )
    for queue, count in (("mail", 700), ("billing", 300)):
        for name in by_queue:
            assert page.total(name, queue=queue) == count, name
    assert page.total("faultline_leases_acquired_total") == 1_000
    assert page.labels("faultline_jobs_claimed_total", "queue") == {"mail", "billing"}
    talked = page.total("faultline_coordination_seconds_total")
    assert 0 < talked <= page.total("faultline_worker_seconds_total")


def test_series_begin_at_zero_before_anything_has_happened(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    """Prometheus does not see the first of a series that begins with it."""
    _, port = worker(fleet, "--queues", "mail")
    page = scrape(port)
    assert page.all("faultline_jobs_failed_total", queue="mail", reason="poison") == {
        frozenset({("queue", "mail"), ("reason", "poison")}): 0
    }
    assert page.all("faultline_stale_write_rejected_total", reason="token_mismatch") == {
        frozenset({("reason", "token_mismatch")}): 0
    }


def test_a_hundred_queues_have_series_of_their_own_and_the_rest_share_one(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    queues = [f"queue-{number}" for number in range(MAX_NAMES + 50)]
    for queue in queues:
        database.enqueue(jobs.answer, queue=queue)
    _, port = worker(fleet, "--queues", ",".join(queues))
    database.wait_for_all(len(queues))

    def series_by_queue(page: Page) -> dict[str, set[str]]:
        named = {name for name, labels in page.samples if "queue" in dict(labels)}
        return {name: page.labels(name, "queue") for name in named}

    page = scrape_until(
        port,
        lambda p: (
            p.total("faultline_jobs_succeeded_total") == len(queues)
            and p.all("faultline_queue_oldest_due_seconds")
            # what was due at each queue is written queue by queue, perhaps while it is read
            and all(len(names) > MAX_NAMES for names in series_by_queue(p).values())
        ),
        "not all were counted",
    )
    assert page.total("faultline_jobs_succeeded_total", queue="other") == 50
    for name, names in series_by_queue(page).items():
        assert len(names) == MAX_NAMES + 1, name
        assert "other" in names


def test_end_to_end_counts_from_when_the_job_was_due(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    jobs.answer.options(run_at=an_hour_ago, conn=database.conn).enqueue()
    _, port = worker(fleet)
    page = scrape_until(
        port,
        lambda p: (
            p.total("faultline_end_to_end_seconds_count")
            and p.total("faultline_end_to_end_seconds_sum")
        ),
        "nothing was timed",
    )
    assert page.total("faultline_end_to_end_seconds_sum") >= 3600
    assert page.total("faultline_execution_seconds_sum") < 3600


@pytest.mark.skipif(missing_requirement() is not None, reason=str(missing_requirement()))
def test_end_to_end_goes_by_the_databases_clock(
    fleet: Fleet, database: ObservedDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The worker's clock is a day ahead; that is not counted as waiting time."""
    for name, value in shifted(86_400, tmp_path).items():
        monkeypatch.setenv(name, value)
    _, port = worker(fleet)
    jobs.answer.options(conn=database.conn).enqueue_many([{}] * 20)
    page = scrape_until(
        port, lambda p: p.total("faultline_end_to_end_seconds_count") == 20, "nothing was timed"
    )
    assert page.total("faultline_end_to_end_seconds_sum") < 86_400


def test_a_commit_of_a_handlers_own_transaction_is_timed(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    _, port = worker(fleet)
    database.wait_for_state(database.enqueue(jobs.pay))
    page = scrape_until(
        port,
        lambda p: (
            p.total("faultline_jobs_succeeded_total") and p.total("faultline_commit_seconds_count")
        ),
        "nothing was counted",
    )
    assert page.total("faultline_commit_seconds_count") == 1


@pytest.mark.executes
def test_nothing_of_prometheus_is_imported_without_metrics(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    fleet.started("--queues", "plain", name="plain")
    worker(fleet, "--queues", "metered", name="metered")
    results = {}
    for queue in ("plain", "metered"):
        job_id = database.enqueue(jobs.what_is_imported, queue=queue)
        database.wait_for_state(job_id)
        query = "SELECT result FROM faultline.ledger WHERE job_id = %s"
        results[queue] = database.wait_for_row(query, [job_id], "no result")[0]
    assert results["plain"] == []
    assert "prometheus_client" in results["metered"]
