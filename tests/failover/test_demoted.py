"""A session whose server was demoted is closed, and no attempt is charged for it.

PgBouncer simulates the switch-over: its clients keep their sessions while it connects to another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NoReturn

import pytest

from faultline import DatabaseUnavailable, Faultline, FaultlineError, Job
from faultline.attempt_transactions import AttemptTransactions
from faultline.model import Claim
from faultline.postgres.sessions import connect, make_async_pool, make_pool, run
from faultline.statements.protocol import claim
from faultline.steady import steady_now
from faultline.workers.leases import Lease
from faultline_drills.cluster import Cluster, ClusterMember
from faultline_drills.proxy import proxy_to
from faultline_drills.servers import pooler
from faultline_drills.servers.pooler import Pooler, pooler_to
from tests.api.served import client_of, make_key, served
from tests.protocol.steps import enqueue
from tests.waiting import wait_until

LEASE_SECONDS = 300.0


@pytest.fixture
def pooled(cluster: Cluster, primary: ClusterMember) -> Iterator[Pooler]:
    if missing := pooler.missing_requirement():
        pytest.skip(missing)
    with pooler_to(primary.url) as running:
        yield running


@pytest.fixture
def claimed(primary: ClusterMember) -> Claim:
    with connect(primary.url) as conn:
        enqueue(conn)
        (found,) = run(
            conn,
            claim("me", ["default"], batch_size=1, lease_seconds=LEASE_SECONDS, resume_after=None),
        )
    return found


def lease_of(found: Claim) -> Lease:
    return Lease(found, sent_at=steady_now(), lease_seconds=LEASE_SECONDS)


def test_a_sync_transaction_on_a_demoted_server_is_the_servers_failure_and_leaves_it(
    pooled: Pooler, primary: ClusterMember, standby: ClusterMember, claimed: Claim
) -> None:
    url = pooled.url(primary.url)
    with make_pool(url, max_size=2, application_name="test") as pool:
        pool.putconn(pool.getconn())  # opened while it was the primary
        pooled.redirect(standby.url)
        lease = lease_of(claimed)
        transactions = AttemptTransactions(claimed, lease)
        job = Job(claimed, lease, lambda: pool, None, transactions=transactions)
        with pytest.raises(FaultlineError), job.transaction():
            raise AssertionError("the transaction was opened on a standby")
        assert transactions.server_failed
        pooled.redirect(primary.url)
        transactions = AttemptTransactions(claimed, lease)
        again = Job(claimed, lease, lambda: pool, None, transactions=transactions)
        with again.transaction():
            pass
        assert not transactions.server_failed


@pytest.mark.slow
def test_an_async_transaction_on_a_demoted_server_is_the_servers_failure_and_leaves_it(
    pooled: Pooler, primary: ClusterMember, standby: ClusterMember, claimed: Claim
) -> None:
    async def main() -> None:
        url = pooled.url(primary.url)
        async with make_async_pool(url, max_size=2, application_name="test") as pool:
            await pool.putconn(await pool.getconn())
            pooled.redirect(standby.url)
            lease = lease_of(claimed)
            transactions = AttemptTransactions(claimed, lease)
            job = Job(claimed, lease, _no_pool, pool, transactions=transactions)
            with pytest.raises(FaultlineError):
                async with job.transaction():
                    raise AssertionError("the transaction was opened on a standby")
            assert transactions.server_failed
            pooled.redirect(primary.url)
            async with Job(claimed, lease_of(claimed), _no_pool, pool).transaction():
                pass

    asyncio.run(main())


def _no_pool() -> NoReturn:
    raise AssertionError("an async job uses the async pool")


def test_an_enqueue_on_a_demoted_server_fails_and_the_next_one_finds_the_primary(
    pooled: Pooler, primary: ClusterMember, standby: ClusterMember
) -> None:
    app = Faultline(pooled.url(primary.url))

    @app.task(name="demoted.pay")
    def pay(job: Job) -> None:
        """Never run here."""

    async def both() -> None:
        await pay.enqueue_async()
        pooled.redirect(standby.url)
        with pytest.raises(DatabaseUnavailable, match="standby"):
            await pay.enqueue_async()
        with pytest.raises(DatabaseUnavailable, match="standby"):
            pay.enqueue()
        pooled.redirect(primary.url)
        await pay.enqueue_async()
        pay.enqueue()
        await app.aclose()

    pay.enqueue()
    asyncio.run(both())


@pytest.mark.slow
def test_the_api_keeps_no_session_with_a_standby_and_recovers_by_itself(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember
) -> None:
    """The URL accepts any server, so sessions with the standby are opened first."""
    with (
        proxy_to(primary.url) as proxy,
        served(proxy.url) as server,
        client_of(server, make_key(primary.url)) as client,
    ):

        def status() -> int:
            return client.post("/jobs", json={"task": "t"}).status_code

        def is_ready() -> bool:
            return bool(client.get("/ready").is_success)

        assert status() == 201
        assert is_ready()
        proxy.redirect(standby.url)
        proxy.reset_all()
        wait_until(lambda: status() == 503 and not is_ready(), "the standby")
        proxy.redirect(primary.url)  # open sessions stay with the standby
        wait_until(lambda: status() == 201 and is_ready(), "the API's recovery")
