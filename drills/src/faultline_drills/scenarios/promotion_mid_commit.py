"""A standby is promoted during commits in three different stages.

The reply to one commit is lost, and the standby has it. The second was sent and never arrives. The
third was written by the primary, which waits for the standby, and is lost. No worker got a reply.
On the new primary the first must exist; the others must not, and must be done again. No payment may
be missing or made twice.
"""

from __future__ import annotations

from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    Cluster,
    expect_epochs,
    missing_requirement,
    multi_host_url,
)
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Interception, Match, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay, pay_by_hand

_WAITS = (
    "SELECT count(*) > 0 FROM pg_stat_activity"
    " WHERE wait_event = 'SyncRep' AND query ~* 'commit[; ]*$'"
)


@scenario(
    shows=("lost_acknowledgements", "power_cuts", "promotions", "unknown_commits", "commits"),
    server_settings=MEMBER_SETTINGS,
    missing_requirement=missing_requirement,
)
def promotion_mid_commit(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    cluster.acknowledge_after([standby])
    network = drill.stack.enter_context(proxy_to(cluster.primary.url))
    reply_lost = network.on(Match(where=is_commit), Action.DROP_REPLY)
    in_transit = network.on(Match(where=is_commit), Action.HOLD)
    unshipped = network.on(Match(where=is_commit), Action.HOLD)
    jobs = max(3, drill.settings.jobs)
    for number in range(jobs):
        drill.submit(pay if number % 2 else pay_by_hand, number=number, parts=3)
    drill.submit(note, number=jobs)
    # Long leases, so that the held commits are still valid when they are released.
    options = ("--lease-seconds", str(5 * drill.settings.lease_seconds))
    url = multi_host_url([network.url, standby.url])
    workers = [drill.worker(*options, url=url) for _ in range(drill.settings.workers)]
    held = (reply_lost, in_transit, unshipped)
    drill.wait_until(lambda: all(each.is_done for each in held), "each COMMIT")
    drill.inject("lost_acknowledgement", "handler")
    _let_it_wait(drill, cluster, network, unshipped)
    shipped = standby.read_state()
    lost = cluster.lose_primary()
    cluster.promote(standby)
    network.clear_faults()
    network.reset_all()
    written = lost.read_from_disk()
    only_there = written.commits - shipped.commits
    drill.expect(bool(only_there), "no commit was written by the primary alone")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.expect(all(worker.is_alive for worker in workers), "a worker ended")
    again = [job for job, token in shipped.commits if _token(drill, job) != token]
    drill.expect(not again, f"{len(again)} jobs were claimed again after they had taken effect")
    expect_epochs(drill, 2)


def _let_it_wait(drill: DrillContext, cluster: Cluster, network: Proxy, held: Interception) -> None:
    """Stop replication, and release the held COMMIT, which then waits for the standby."""
    cluster.standbys[0].follow(None)
    network.release(held)
    drill.wait_until(
        lambda: bool(cluster.primary.ask(_WAITS)), "a COMMIT that waits for the standby"
    )


def _token(drill: DrillContext, job: str) -> int:
    return drill.count("SELECT fencing_token FROM faultline.jobs WHERE id = %s", [job])
