"""The primary is lost, and its synchronous standby is promoted.

With `synchronous_standby_names` set, a COMMIT is acknowledged when a standby has it too. Everything
that was acknowledged to workers and a producer must exist on the new primary, no process may need a
restart, and tokens must rise in a new epoch.
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
