"""A server is lost for good, and an older state of it is brought back in its place: no replica, a backup.

What happened since the backup is gone from the database and known everywhere else: workers hold
claims, the outside has seen tokens. A server that just went on would give the same tokens out again.
So the first claim is refused (FL008), workers say so and wait, and go on when somebody has said that
this is the one: `faultline epoch bump`. No worker has to be restarted.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import LiteralString

from faultline.embedded import Server
from faultline.errors import ServerChanged
from faultline.postgres.address import environment_with
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    BackgroundLoad,
    Cluster,
    ClusterMember,
    expect_epochs,
    lacking,
)
from faultline_drills.cluster.base_backup import RECOVERY, base_backup, start_as
from faultline_drills.cluster.dump import Dump
from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.recording.database_state import LostState
from faultline_drills.scenario import scenario

_SHOWN = (
    "power_cuts",
    "restores",
    "lost_submits",
    "lost_commits",
    "lost_claims",
    "outages",
    "commits",
)
_CLAIMS: LiteralString = (
    "SELECT count(*) FROM drill.transitions WHERE (before, after) = ('queued', 'running')"
)
Restore = Callable[[], ClusterMember]


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def restored_base_backup(drill: DrillContext) -> None:
    """A server is lost, and the base backup that was taken while it worked is started in its place.

    It has the same identity and the same timeline as the one that was lost; what gives it away is
    that its files came from a backup. The first claim is refused (FL008), workers say so and wait, and go
    on when somebody has said that this is the one: `faultline epoch bump`.
    """
    cluster = Cluster(drill, standbys=0)
    load = BackgroundLoad(drill, outside=True)
    load.wait_for_commits(1, "before the backup")
    lay_down = _base_backup(drill, cluster)
    _lose_and_restore(drill, cluster, load, lay_down)
    _claims_are_refused_until_the_bump(drill, load)
    _go_on(drill, load)


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def restored_in_recovery(drill: DrillContext) -> None:
    """A server is lost, and a base backup is recovered in its place as far as the archived log goes.

    That is how a point in time is restored (`recovery.signal`), and PostgreSQL begins a new timeline at its
    end. The epoch rises with it, before the first claim, and nobody has to say anything.
    """
    cluster = Cluster(drill, standbys=0)
    load = BackgroundLoad(drill, outside=True)
    load.wait_for_commits(1, "before the backup")
    lay_down = _base_backup(drill, cluster, in_recovery=True)
    _lose_and_restore(drill, cluster, load, lay_down)
    _go_on(drill, load)


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def restored_dump(drill: DrillContext) -> None:
    """A server is lost, and what `pg_dump` wrote while it worked is loaded into a new one in its place.

    The new server has an identity of its own, and a log that begins anew. The first claim is refused
    (FL008), workers say so and wait, and go on when somebody has said that this is the one:
    `faultline epoch bump`.
    """
    cluster = Cluster(drill, standbys=0)
    load = BackgroundLoad(drill, outside=True)
    load.wait_for_commits(1, "before the dump")
    dump = Dump.of(cluster.primary)
    fresh = _server(drill)
    _lose_and_restore(drill, cluster, load, lambda: dump.restore(fresh))
    _claims_are_refused_until_the_bump(drill, load)
    _go_on(drill, load)


def _base_backup(drill: DrillContext, cluster: Cluster, *, in_recovery: bool = False) -> Restore:
    server = _server(drill)
    base_backup(cluster.primary.server, server.data_dir)
    if in_recovery:
        start_as(RECOVERY, server.data_dir, restore_command="false")  # the archive has nothing more

    def lay_down() -> ClusterMember:
        server.start()
        return ClusterMember("restored", server, database=cluster.primary.database)

    return lay_down


def _server(drill: DrillContext, *, port: int | None = None) -> Server:
    """Beside the one that will be lost, and gone with the drill."""
    data_dir = drill.server.data_dir.with_name("restored")
    server = Server(data_dir, settings=MEMBER_SETTINGS, ephemeral=True, port=port)
    drill.stack.callback(server.stop, mode="immediate")
    return server


def _lose_and_restore(
    drill: DrillContext, cluster: Cluster, load: BackgroundLoad, restore: Restore
) -> None:
    """In the lost server's place; what is there to go on from is read before anybody can find it."""
    load.wait_for_commits(drill.settings.jobs, "after the backup")
    lost = cluster.lose_primary()
    port = lost.port
    restored = restore()
    drill.lost_states.append(LostState.between(lost.read_from_disk(), restored.read_state()))
    restored.server.shut_down()
    in_place = _server(drill, port=port)
    in_place.start()
    drill.inject("restore", in_place.data_dir.name)


def _claims_are_refused_until_the_bump(drill: DrillContext, load: BackgroundLoad) -> None:
    """To whoever asks, worker or not; the workers say what they wait for, and do not give up."""
    claims = drill.count(_CLAIMS)
    try:
        run(drill.conn, protocol.claim("operator", ["default"], batch_size=1, lease_seconds=1))
        refused = False
    except ServerChanged:
        refused = True
    drill.expect(refused, "the first claim is refused")
    if not refused:
        return  # then nobody has anything to wait for
    for worker in load.workers:
        drill.wait_until(
            lambda worker=worker: bool(_reasons(worker)),  # type: ignore[misc]
            f"{worker.name} saying what it waits for",
            by=worker,
        )
    _bump(drill, claims)
    load.wait_for_commits(1, "after the bump")
    for worker in load.workers:
        said = len(_reasons(worker))
        drill.expect(said == 1, f"{worker.name} said {said} times what it waits for")


def _reasons(worker: ObservedProcess) -> list[str]:
    said = [str(each["error"]) for each in worker.events_named("database_unavailable")]
    return [reason for reason in said if "faultline epoch bump" in reason]


def _bump(drill: DrillContext, claims: int) -> None:
    """As an operator does; until then there are as many claims as the backup brought along."""
    granted = drill.count(_CLAIMS) - claims
    drill.expect(granted == 0, f"{granted} jobs were claimed before the bump")
    done = subprocess.run(
        [sys.executable, "-m", "faultline", "epoch", "bump", "--yes", "--reason", "restored"],
        env=environment_with(drill.url),
        capture_output=True,
        text=True,
        timeout=drill.settings.timeout_seconds,
        check=False,
    )
    if done.returncode:
        raise DrillNotRun(f"faultline epoch bump ended with {done.returncode}: {done.stderr}")


def _go_on(drill: DrillContext, load: BackgroundLoad) -> None:
    load.wait_for_commits(drill.settings.jobs, "on the restored server")
    load.end()
    expect_epochs(drill, 2)
