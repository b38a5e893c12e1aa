"""Two standbys of one primary are promoted in turn, unknown to each other.

The first is lost soon after its promotion, and the second, which never followed it, is promoted.
PostgreSQL gives both histories the same timeline number. Tokens that the first issued must not be
issued by the second, or the external store would mistake one worker for the other.
"""

from __future__ import annotations

from faultline_drills.cluster import MEMBER_SETTINGS, Cluster, missing_requirement
from faultline_drills.context import DrillContext
from faultline_drills.processes.stalled_worker import resume_until_done
from faultline_drills.recording.database_state import LostState
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_NEWEST = "SELECT max(epoch) FROM faultline.epochs"
# Epochs have a resolution of one second; two promotions within one need a manual bump.
_SECONDS = "SELECT floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))"


@scenario(
    shows=(
        "power_cuts",
        "promotions",
        "stops",
        "lost_claims",
        "external_refusals",
        "stale_rejections",
        "commits",
    ),
    server_settings=MEMBER_SETTINGS,
    missing_requirement=missing_requirement,
)
def two_standbys_promoted(drill: DrillContext) -> None:
    cluster = Cluster(drill, standbys=2)
    first, second = cluster.standbys
    jobs = max(2, drill.settings.jobs)
    for number in range(jobs):
        # Long enough to be stopped during the work on a slow machine.
        drill.submit(
            pay, number=number, outside=True, work_seconds=1.5 * drill.settings.lease_seconds
        )
    for standby in (first, second):
        cluster.wait_until_shipped(standby)
    cluster.lose_primary()
    cluster.promote(first)
    concurrency = ("--concurrency", str(jobs))
    late = drill.worker("--no-self-fencing", *concurrency, name="late")
    drill.wait_until(
        lambda: len(late.events_named("lease_acquired")) == jobs, "the claims", by=late
    )
    late.stop()
    drill.inject("stop", late.name)
    epoch, timeline = first.ask(_NEWEST), first.timeline
    shipped = second.read_state()
    cluster.lose_primary()
    drill.lost_states.append(LostState.between(first.read_from_disk(), shipped))
    drill.wait_until(lambda: second.ask(_SECONDS) > epoch, "the next second")
    cluster.promote(second)
    drill.expect(second.timeline == timeline, "the two histories have different timeline numbers")
    drill.worker(*concurrency, name="successor")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    resume_until_done(drill, late, attempts=jobs)
