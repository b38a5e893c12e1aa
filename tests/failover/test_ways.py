"""Clients of a cluster reach its primary while servers are lost and promoted."""

from __future__ import annotations

import random
from contextlib import ExitStack

import psycopg
import pytest

from faultline_drills.cluster import Cluster, ClusterMember
from faultline_drills.context import DrillContext
from faultline_drills.nemesis import FAULTS, FaultTargets, NemesisProcesses, ProxiedNetwork
from faultline_drills.proxy import proxy_to
from faultline_drills.scenario import DrillSettings
from faultline_drills.servers import pooler
from faultline_drills.servers.pooler import pooler_to
from tests.protocol.steps import enqueue
from tests.waiting import wait_until

IS_STANDBY = "SELECT pg_is_in_recovery()"


@pytest.mark.slow
def test_a_failover_of_the_soak_keeps_what_was_acknowledged_and_can_happen_again(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember
) -> None:
    standby.promote()
    with ExitStack() as stack:
        drill = DrillContext(standby.url, DrillSettings(), server=standby.server, stack=stack)
        pair = Cluster(drill)
        pair.acknowledge_after(pair.standbys, level="on")
        targets = FaultTargets(
            drill=drill,
            processes=NemesisProcesses(drill, [], workers=0, reconcilers=0),
            networks=[],
            rng=random.Random(1),
            cluster=pair,
        )
        targets.ending.set()  # so that no fault waits
        addresses, members = pair.url, [standby]
        submitted = set()
        for _ in range(2):
            with psycopg.connect(addresses, autocommit=True) as session:
                submitted.add(enqueue(session)[0])
            FAULTS["failover"].inject(targets)
            members.append(pair.primary)
        assert len(set(members)) == 3, "each primary was lost, and none of them returned"
        assert pair.url == addresses
        (waited_for,) = pair.standbys
        synchronous = "SELECT application_name FROM pg_stat_replication WHERE sync_state = 'quorum'"
        assert drill.query(synchronous) == [(waited_for.name,)]
        found = {job_id for (job_id,) in drill.query("SELECT id FROM faultline.jobs")}
        assert submitted <= found


def test_a_network_leads_to_the_primary_and_fails_on_the_way_to_every_server(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember
) -> None:
    with proxy_to(standby.url) as to_standby, proxy_to(primary.url) as to_primary:
        network = ProxiedNetwork("network", [to_standby, to_primary])
        session = psycopg.connect(network.url, autocommit=True)
        assert session.execute(IS_STANDBY).fetchone() == (False,)
        wait_until(lambda: len(network.connections) == 1, "the end of asking the standby")
        assert network.busiest is to_primary
        reader = psycopg.connect(to_standby.url, autocommit=True)
        network.refuse_connections()
        assert network.reset_all() == 2
        for each in (session, reader):
            with pytest.raises(psycopg.OperationalError):
                each.execute("SELECT 1")
        for url in (to_standby.url, to_primary.url):
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(url)
        network.clear_faults()
        psycopg.connect(network.url).close()


def test_a_redirected_pooler_connects_to_the_other_server(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember
) -> None:
    if missing := pooler.missing_requirement():
        pytest.skip(missing)
    with (
        pooler_to(primary.url) as pooled,
        psycopg.connect(pooled.url(primary.url), autocommit=True) as session,
    ):
        assert session.execute(IS_STANDBY).fetchone() == (False,)
        pooled.redirect(standby.url)
        assert session.execute(IS_STANDBY).fetchone() == (True,)
