"""The primary is lost for good, and the standby that every acknowledged commit had reached takes its place.

With `synchronous_standby_names` set, a COMMIT is answered when a standby has it too. Jobs were running,
and a producer was submitting, when the machine of the primary went away. Whoever was told that
something is done finds it done on the new primary, nobody has to be restarted, and tokens go on rising
in an epoch of their own.
"""

from __future__ import annotations

from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    BackgroundLoad,
    Cluster,
    expect_epochs,
    lacking,
)
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario

_SHOWN = ("power_cuts", "promotions", "outages", "commits")


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def synchronous_failover(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    cluster.acknowledge_after([standby])
    load = BackgroundLoad(drill)
    load.wait_for_commits(drill.settings.jobs, "on the first primary")
    cluster.lose_primary()
    cluster.promote(standby)
    load.wait_for_commits(drill.settings.jobs, "on the second")
    load.end()
    expect_epochs(drill, 2)


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def second_failover(drill: DrillContext) -> None:
    """Of three servers two are lost, one after the other, each while it was the primary.

    A COMMIT is answered when either standby has it (`ANY 1`), and one of them has fallen behind: the
    one that has read further is promoted, since only it has all that was acknowledged. The other one
    follows it, and has its turn. Each promotion begins an epoch, and nothing acknowledged is lost.
    """
    cluster = Cluster(drill, standbys=2)
    behind = cluster.standbys[0]
    cluster.acknowledge_after(cluster.standbys, level="on")
    load = BackgroundLoad(drill)
    load.wait_for_commits(1, "that both standbys have")
    behind.follow(None)
    load.wait_for_commits(drill.settings.jobs, "on the first primary")
    cluster.lose_primary()
    ahead = max(cluster.standbys, key=lambda standby: standby.received)
    drill.expect(ahead is not behind, "the standby that was waited for has read further")
    cluster.promote(ahead)
    behind.follow(ahead)
    cluster.acknowledge_after([behind], level="on")
    load.wait_for_commits(drill.settings.jobs, "on the second")
    cluster.lose_primary()
    cluster.promote(behind)
    load.wait_for_commits(drill.settings.jobs, "on the third")
    load.end()
    expect_epochs(drill, 3)
