"""Checks of `doctor` on the queue: epoch, workers, leases, locks, sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from faultline.cli.doctor.check import Check, ok, problem, warning
from faultline.cli.output import count, duration
from faultline.postgres.driver import QueryCanceled
from faultline.postgres.sessions import Connection, run
from faultline.statements import epochs, locks, server
from faultline.statements.leadership import is_led
from faultline.statements.workers import WorkerStatus, registry

OLDEST_ROWS = 10_000
SIZES_SECONDS = 5
RECOVERY_SECONDS = 10.0  # a lease that ran out longer ago should have been reconciled


def epoch(conn: Connection) -> Iterator[Check]:
    status = run(conn, epochs.status())
    if status.is_refused:
        advice = "if the original is gone for good: faultline epoch bump"
        yield problem(
            "epoch",
            "the database was restored, and refuses claims until a new epoch begins",
            advice,
        )
    elif status.here.timeline is None and not status.is_standby:
        finding = f"{status.epoch}; the schema's owner may not see the timeline of the WAL"
        advice = "after each failover, before workers continue: faultline epoch bump"
        yield warning("epoch", finding, advice)
    else:
        yield ok("epoch", f"{status.epoch}, since {status.began_at:%Y-%m-%d} ({status.cause})")


def prepared_transactions(conn: Connection) -> Iterator[Check]:
    found = run(conn, server.prepared_transactions())
    for one in found:
        gid = one.gid.replace("'", "''")
        yield problem(
            "prepared transaction",
            f"{one.gid!r} of {one.owner} has held rows of Faultline for {duration(one.seconds)}:"
            " their jobs can be neither claimed nor reconciled",
            f"COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
        )
    if not found:
        yield ok("prepared transactions", "none holds rows of Faultline")


def workers(conn: Connection) -> Iterator[Check]:
    found = run(conn, registry())
    tally = Counter(worker.status for worker in found)
    finding = ", ".join(f"{tally[status]} {status}" for status in WorkerStatus if tally[status])
    if tally[WorkerStatus.SILENT]:
        silent = [worker.id for worker in found if worker.status is WorkerStatus.SILENT]
        advice = f"look for a frozen, overloaded or disconnected process: {', '.join(silent[:5])}"
        yield warning("workers", finding, advice)
    else:
        yield ok("workers", finding or "none registered")
    served = {
        name for worker in found if worker.status is WorkerStatus.ALIVE for name in worker.queues
    }
    for queue, due in run(conn, server.due_by_queue()).items():
        if queue not in served:
            finding = f"{count(due, 'job')} due in queue {queue}, but no live worker claims from it"
            advice = f"faultline worker --app MODULE:NAME --queues {queue}"
            yield warning("unserved queue", finding, advice)


def leases(conn: Connection) -> Iterator[Check]:
    expired = run(conn, server.expired_leases())
    late = expired.oldest_seconds or 0.0
    if late <= RECOVERY_SECONDS:
        yield ok("leases", "no expired lease is waiting to be reconciled")
        return
    finding = f"{count(expired.count, 'lease')} ran out, the oldest {duration(late)} ago"
    alive = any(seen.status is WorkerStatus.ALIVE for seen in run(conn, registry()))
    if alive or run(conn, is_led()):
        advice = "their rows are locked: faultline jobs list --state running, then faultline why"
        yield warning("leases", finding, advice)
        yield from _sessions_locking_expired_jobs(conn)
    else:
        advice = "start a worker, or faultline reconciler"
        yield problem("leases", f"{finding}, and no process is alive to reconcile them", advice)


def _sessions_locking_expired_jobs(conn: Connection) -> Iterator[Check]:
    """Report sessions that no reconciler ended, perhaps because none has the right to."""
    for one in run(conn, locks.locked_lapsed_jobs(older_than_seconds=RECOVERY_SECONDS)):
        if one.prepared_as is None:
            yield problem(
                "locked job",
                f"session {one.pid} ({one.application}) of {one.account} locks job {one.job_id}, whose"
                " lease ran out",
                f"as a superuser: SELECT pg_terminate_backend({one.pid}); to let reconcilers do it:"
                " GRANT pg_signal_backend, pg_read_all_stats TO the schema's owner",
            )


def stored_sizes(conn: Connection) -> Iterator[Check]:
    """Find rows that are older than the size limits: showing or dumping one can fail."""
    name = "stored sizes"
    if not run(conn, server.may_read_texts()):
        yield ok(name, "not checked: this account may not read payloads, results and errors")
        return
    oldest = f"the oldest {OLDEST_ROWS:,} rows of each table"
    try:
        with conn.transaction():
            conn.execute(f"SET LOCAL statement_timeout = '{SIZES_SECONDS}s'")
            found = run(conn, server.oversized(oldest=OLDEST_ROWS))
    except QueryCanceled:
        finding = f"unknown: reading {oldest} took more than {SIZES_SECONDS} s"
        yield warning(name, finding, "run faultline verify, which reads all rows")
        return
    among = "" if found.looked_at_all else f", among {oldest}"
    if found.rows:
        yield warning(
            name,
            f"{count(found.rows, 'row')} with more text than may be stored today{among}, the first of job"
            f" {found.first}: commands and pg_dump may fail on such a row",
            "faultline verify names each; remove such jobs, or wait until retention does",
        )
    else:
        yield ok(name, f"no row with more text than may be stored today{among}")
