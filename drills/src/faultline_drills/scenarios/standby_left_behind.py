"""Two standbys of one primary are promoted, one after the other, and neither ever heard of the other.

The first one is lost soon after its promotion, and the second, which never followed it, takes its
place. PostgreSQL gives both histories the same timeline number: each is the next after the one they
share. Tokens that the first gave out must not be given out by the second, or the outside would take one
worker for the other.
"""

from __future__ import annotations

from faultline_drills.arena import Arena
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster, lacking
from faultline_drills.lateness import wake_to_the_end
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay
from faultline_drills.world import Abandoned

_NEWEST = "SELECT max(epoch) FROM faultline.epochs"
# An epoch is a second of the clock at least: who promotes two of them within one has to bump by hand.
_SECONDS = "SELECT floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))"


@scenario(
    shows=(
        "power_cuts",
        "promotions",
        "stops",
        "lost_claims",
        "outside_refusals",
        "stale_rejections",
        "commits",
    ),
    server_settings=MEMBER_SETTINGS,
    lacking=lacking,
)
def standby_left_behind(arena: Arena) -> None:
    cluster = Cluster(arena, standbys=2)
    first, second = cluster.standbys
    jobs = max(2, arena.settings.jobs)
    for number in range(jobs):
        # Long enough to be stopped in the middle, even by somebody who is slow.
        arena.submit(
            pay, number=number, outside=True, work_seconds=1.5 * arena.settings.lease_seconds
        )
    for standby in (first, second):
        cluster.wait_until_shipped(standby)
    cluster.lose_primary()
    cluster.promote(first)
    all_at_once = ("--concurrency", str(jobs))
    late = arena.worker("--no-self-fencing", *all_at_once, name="late")
    arena.wait_until(lambda: len(late.heard("lease_acquired")) == jobs, "the claims", by=late)
    late.stop()
    arena.inject("stop", late.name)
    epoch, timeline = first.ask(_NEWEST), first.timeline
    shipped = second.world()
    cluster.lose_primary()
    arena.abandoned.append(Abandoned.between(first.exhume(), shipped))
    arena.wait_until(lambda: second.ask(_SECONDS) > epoch, "the next second")
    cluster.promote(second)
    arena.expect(second.timeline == timeline, "both histories have the same timeline number")
    arena.worker(*all_at_once, name="successor")
    arena.wait_until(lambda: arena.unfinished() == 0, "the end of all jobs")
    wake_to_the_end(arena, late, attempts=jobs)
