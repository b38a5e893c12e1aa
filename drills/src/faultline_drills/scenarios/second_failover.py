"""Two of three servers are lost in turn, each while it is the primary.

A COMMIT is acknowledged when either standby has it (`ANY 1`), and one standby lags. The one
with more WAL is promoted, since only it has every acknowledged commit; the other one follows
it, and is promoted next. Each promotion must start an epoch, and nothing acknowledged may be
lost.
"""

from __future__ import annotations

from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    BackgroundLoad,
    Cluster,
    expect_epochs,
    missing_requirement,
)
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario

_SHOWN = ("power_cuts", "promotions", "outages", "commits")


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, missing_requirement=missing_requirement)
def second_failover(drill: DrillContext) -> None:
    cluster = Cluster(drill, standbys=2)
    behind = cluster.standbys[0]
    cluster.acknowledge_after(cluster.standbys, level="on")
    load = BackgroundLoad(drill)
    load.wait_for_commits(1, "that both standbys have")
    behind.follow(None)
    load.wait_for_commits(drill.settings.jobs, "on the first primary")
    cluster.lose_primary()
    ahead = max(cluster.standbys, key=lambda standby: standby.received)
    drill.expect(ahead is not behind, "the lagging standby has received more WAL")
    cluster.promote(ahead)
    behind.follow(ahead)
    cluster.acknowledge_after([behind], level="on")
    load.wait_for_commits(drill.settings.jobs, "on the second")
    cluster.lose_primary()
    cluster.promote(behind)
    load.wait_for_commits(drill.settings.jobs, "on the third")
    load.end()
    expect_epochs(drill, 3)
