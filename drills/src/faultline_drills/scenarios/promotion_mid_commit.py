"""A standby is promoted while commits are under way, each as far as a commit can be.

Of one the answer is lost: the standby has it. One has been sent and never arrives. One has been written
by the primary, which waits for the standby to have it too, and is lost while it waits. Nobody was told
how any of them ended. Each turns out to be one of two, on the server that goes on: the first is there, the
others are not, and are done again. No payment is missing, and none is made twice.
"""

from __future__ import annotations

from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    Cluster,
    expect_epochs,
    lacking,
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
    lacking=lacking,
)
def promotion_mid_commit(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    cluster.acknowledge_after([standby])
    network = drill.stack.enter_context(proxy_to(cluster.primary.url))
    answer_lost = network.on(Match(where=is_commit), Action.DROP_REPLY)
    on_its_way = network.on(Match(where=is_commit), Action.HOLD)
    unshipped = network.on(Match(where=is_commit), Action.HOLD)
    jobs = max(3, drill.settings.jobs)
    for number in range(jobs):
        drill.submit(pay if number % 2 else pay_by_hand, number=number, parts=3)
    drill.submit(note, number=jobs)
    # What is held back must still be good when it is let go: no lease may run out meanwhile.
    options = ("--lease-seconds", str(5 * drill.settings.lease_seconds))
    url = multi_host_url([network.url, standby.url])
    workers = [drill.worker(*options, url=url) for _ in range(drill.settings.workers)]
    held = (answer_lost, on_its_way, unshipped)
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
    drill.expect(bool(only_there), "a commit was written by the primary, and by it alone")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.expect(all(worker.is_alive for worker in workers), "the workers lived through it")
    again = [job for job, token in shipped.commits if _token(drill, job) != token]
    drill.expect(not again, f"{len(again)} jobs had taken effect, and were claimed again")
    expect_epochs(drill, 2)


def _let_it_wait(drill: DrillContext, cluster: Cluster, network: Proxy, held: Interception) -> None:
    """The standby hears nothing more, and the COMMIT that was held back gets as far as the primary."""
    cluster.standbys[0].follow(None)
    network.release(held)
    drill.wait_until(
        lambda: bool(cluster.primary.ask(_WAITS)), "a COMMIT that waits for the standby"
    )


def _token(drill: DrillContext, job: str) -> int:
    return drill.count("SELECT fencing_token FROM faultline.jobs WHERE id = %s", [job])
