"""The primary is lost before its last commits reached the promoted standby.

An asynchronous standby lags behind: jobs, payments and claims that it lacks are lost. The drill
measures them, and nothing else may be lost. A worker with a claim that only the lost server knew
must not commit, and no token that the lost server issued may be issued again. The external store,
which has seen the old tokens, refuses late calls.
"""

from __future__ import annotations

from faultline_drills.cluster import MEMBER_SETTINGS, Cluster, missing_requirement
from faultline_drills.cluster.unreplicated_work import (
    LOST_WORK_SHOWS,
    resume_late_worker,
    submit_again,
    work_without_replication,
)
from faultline_drills.context import DrillContext
from faultline_drills.recording.database_state import LostState
from faultline_drills.scenario import scenario


@scenario(
    shows=("power_cuts", *LOST_WORK_SHOWS),
    breaks_naive=True,
    server_settings=MEMBER_SETTINGS,
    missing_requirement=missing_requirement,
)
def asynchronous_failover(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    workers = work_without_replication(drill, cluster, standby, url=drill.url)
    shipped = standby.read_state()
    lost = cluster.lose_primary()
    cluster.promote(standby)
    drill.lost_states.append(LostState.between(lost.read_from_disk(), shipped))
    submit_again(drill)
    resume_late_worker(drill, workers)
