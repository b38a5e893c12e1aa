"""Workers know the address of a standby only, which is promoted later.

Nothing can be claimed from a read-only server. Workers and a reconciler must log that once and
wait, without ending. When the standby becomes the primary, they must start to work.
"""

from __future__ import annotations

from psycopg import conninfo

from faultline_drills.cluster import MEMBER_SETTINGS, Cluster, expect_epochs, missing_requirement
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(
    shows=("power_cuts", "promotions", "outages", "commits"),
    server_settings=MEMBER_SETTINGS,
    missing_requirement=missing_requirement,
)
def standby_promoted(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    for number in range(drill.settings.jobs):
        drill.submit(pay, number=number, parts=2)
    cluster.wait_until_shipped(standby)
    plain = conninfo.make_conninfo(standby.url, target_session_attrs=None)
    writing = conninfo.make_conninfo(standby.url, target_session_attrs="read-write")
    waiting = [
        drill.worker(name="any-session", url=plain),
        drill.worker(name="read-write-session", url=writing),
        drill.worker(name="reconciler", url=plain, command="reconciler"),
    ]
    for each in waiting:
        drill.wait_until(
            lambda each=each: bool(each.events_named("database_unavailable")),  # type: ignore[misc]
            f"an outage logged by {each.name}",
            by=each,
        )
    drill.expect(
        not any(each.events_named("lease_acquired") for each in waiting),
        "a job was claimed from a standby",
    )
    cluster.lose_primary()
    cluster.promote(standby)
    workers = waiting[:2]
    drill.wait_until(
        lambda: all(_has_started(each) for each in workers), "the start of both workers"
    )
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.expect(all(each.is_alive for each in waiting), "a process ended")
    for each, purpose in zip(waiting, ("worker", "worker", "reconciler"), strict=True):
        count = len(each.events_named("database_unavailable", purpose=purpose))
        drill.expect(count == 1, f"{each.name} logged {count} times that it waits")
    expect_epochs(drill, 2)


def _has_started(worker: ObservedProcess) -> bool:
    return bool(worker.events_named("worker_started"))
