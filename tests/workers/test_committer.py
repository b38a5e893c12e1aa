"""Jobs without a transaction are committed in batches, each under its own fence."""

from __future__ import annotations

import asyncio
from uuid import UUID

import psycopg
import pytest

from faultline import Faultline, Job, JobState
from faultline.model import Claim, CommitOutcome
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.protocol import CommitVerdict
from faultline.workers.background import Wakeup
from faultline.workers.committer import Committer, Entry
from faultline.workers.leases import Lease
from tests.running import Connection, EventTap, count, expire, value, working
from tests.waiting import LIMIT_SECONDS, wait_until

KILL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name = 'faultline committer' AND datname = current_database()"
)


def claimed(conn: Connection, how_many: int) -> list[Claim]:
    conn.execute(
        "SELECT faultline.enqueue_many('noop', array_fill('{}'::jsonb, ARRAY[%s]))", [how_many]
    )
    statement = protocol.claim("me", ["default"], batch_size=how_many, lease_seconds=60)
    return run(conn, statement)


class Answers(Wakeup):
    """The verdicts as they come in, and how many flushes it took."""

    def __init__(self) -> None:
        super().__init__()
        self.verdicts: dict[UUID, CommitVerdict | Exception] = {}
        self.flushes = 0

    def entry(self, claim: Claim, result: str | None = None) -> Entry:
        lease = Lease(claim, sent_at=0.0, lease_seconds=60.0)
        return Entry(lease, result, self)

    def on_verdict(self, lease: Lease, verdict: CommitVerdict | Exception) -> None:
        assert lease.claim.job_id not in self.verdicts, "a second verdict"
        self.verdicts[lease.claim.job_id] = verdict

    async def may_wait_for_row(self, lease: Lease) -> bool:
        return True

    def set(self) -> None:
        self.flushes += 1

    def outcomes(self) -> set[CommitOutcome]:
        return {
            verdict.outcome
            for verdict in self.verdicts.values()
            if isinstance(verdict, CommitVerdict)
        }


def commit_all(
    database_url: str, claims: list[Claim], results: list[str | None] | None = None, *, batch: int
) -> Answers:
    answers = Answers()

    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="committer")
        committer = Committer(link, batch_size=batch, wakeup=answers)
        for claim, result in zip(claims, results or [None] * len(claims), strict=True):
            committer.submit(answers.entry(claim, result))
        assert committer.pending == len(claims)
        service = asyncio.create_task(committer.run())
        await asyncio.wait_for(committer.drained(), LIMIT_SECONDS)
        assert committer.pending == 0
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)
        await committer.close()

    asyncio.run(main())
    return answers


def test_commits_that_wait_together_are_one_batch(conn: Connection, database_url: str) -> None:
    answers = commit_all(database_url, claimed(conn, 100), batch=500)
    assert answers.flushes == 1
    assert answers.outcomes() == {CommitOutcome.COMMITTED}
    assert value(conn, "SELECT count(DISTINCT xmin::text) FROM faultline.ledger") == 1
    assert count(conn, "faultline.ledger") == 100


def test_a_batch_has_at_most_its_maximum_size(conn: Connection, database_url: str) -> None:
    answers = commit_all(database_url, claimed(conn, 25), batch=10)
    assert answers.flushes == 3
    sizes = "SELECT count(*) FROM faultline.ledger GROUP BY xmin::text ORDER BY 1"
    assert conn.execute(sizes).fetchall() == [(5,), (10,), (10,)]


def test_one_stale_claim_does_not_hold_back_the_others(conn: Connection, database_url: str) -> None:
    claims = claimed(conn, 10)
    expire(conn, claims[3].job_id)
    answers = commit_all(database_url, claims, batch=500)
    assert count(conn, "faultline.ledger") == 9
    stale = answers.verdicts[claims[3].job_id]
    assert isinstance(stale, CommitVerdict)
    assert (stale.outcome, stale.reason) == (CommitOutcome.STALE, "lease_expired")


def test_one_entry_that_cannot_be_stored_does_not_hold_back_the_others(
    conn: Connection, database_url: str
) -> None:
    claims = claimed(conn, 5)
    results = [None, '"fine"', "not json", None, '"fine"']
    answers = commit_all(database_url, claims, results, batch=500)
    assert count(conn, "faultline.ledger") == 4
    assert isinstance(answers.verdicts[claims[2].job_id], psycopg.Error)


@pytest.mark.parametrize("batch", [10, 1])
def test_a_row_that_is_locked_is_committed_once_it_is_free_and_holds_up_no_other(
    conn: Connection, database_url: str, batch: int
) -> None:
    claims = claimed(conn, 3)
    answers, two = Answers(), asyncio.Event()

    class Flushed(Wakeup):
        def set(self) -> None:
            if len(answers.verdicts) == 2:
                two.set()

    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="committer")
        committer = Committer(link, batch_size=batch, wakeup=Flushed())
        service = asyncio.create_task(committer.run())
        with psycopg.connect(database_url) as holder:
            holder.execute(
                "SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [claims[0].job_id]
            )
            for claim in claims:
                committer.submit(answers.entry(claim))
            async with asyncio.timeout(LIMIT_SECONDS):
                await two.wait()
            assert claims[0].job_id not in answers.verdicts
            holder.rollback()
        await asyncio.wait_for(committer.drained(), LIMIT_SECONDS)
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)
        await committer.close()

    asyncio.run(main())
    assert answers.outcomes() == {CommitOutcome.COMMITTED}
    assert count(conn, "faultline.ledger") == 3


def test_a_batch_that_was_committed_before_is_answered_as_yours(
    conn: Connection, database_url: str
) -> None:
    claims = claimed(conn, 3)
    run(conn, protocol.commit_many(claims, [None] * 3))
    answers = commit_all(database_url, claims, batch=10)
    assert answers.outcomes() == {CommitOutcome.ALREADY_YOURS}


@pytest.mark.parametrize("kills", [1, 5])
def test_every_job_is_committed_once_however_often_the_session_is_killed(
    app: Faultline, conn: Connection, events: EventTap, kills: int
) -> None:
    runs: list[UUID] = []

    @app.task()
    async def noop(job: Job) -> None:
        runs.append(job.id)

    jobs = [job.job_id for job in noop.enqueue_many([{}] * 300)]
    with working(app, concurrency=20, commit_batch=10):
        for number in range(1, kills + 1):
            wait_until(lambda number=number: count(conn, "faultline.ledger") >= 30 * number)  # type: ignore[misc]
            wait_until(lambda: value(conn, KILL) or count(conn, "faultline.ledger") == 300)
        wait_until(lambda: count(conn, "faultline.ledger") == 300)
        wait_until(lambda: len(events.of("commit_ok")) == 300)
    assert sorted(runs) == sorted(jobs)
    assert {app.get(job_id).state for job_id in jobs[:5]} == {JobState.SUCCEEDED}
    assert value(conn, "SELECT max(attempts) FROM faultline.jobs") == 1


def test_a_flood_of_jobs_is_committed_in_far_fewer_transactions(
    app: Faultline, conn: Connection
) -> None:
    @app.task()
    async def noop(job: Job) -> None: ...

    noop.enqueue_many([{}] * 500)
    with working(app, concurrency=100):
        wait_until(lambda: count(conn, "faultline.ledger") == 500)
    assert value(conn, "SELECT count(DISTINCT xmin::text) FROM faultline.ledger") <= 100
