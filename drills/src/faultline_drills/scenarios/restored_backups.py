"""A server is lost for good, and a backup of it is started in its place.

Everything since the backup is lost from the database, but workers hold claims and the external
store has seen tokens. If the server just went on, it would issue the same tokens again. The first
claim must be refused (FL008); workers must log it and wait until an operator runs `faultline epoch
bump`, and then go on without a restart.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import LiteralString

from faultline.embedded import Server
from faultline.errors import ServerChanged
from faultline.postgres.sessions import run
from faultline.postgres.url import environment_with
from faultline.statements import protocol
from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    BackgroundLoad,
    Cluster,
    ClusterMember,
    expect_epochs,
    missing_requirement,
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


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, missing_requirement=missing_requirement)
def restored_base_backup(drill: DrillContext) -> None:
    """A lost server is replaced by a base backup of it.

    The backup has the same identity and timeline as the lost server, but its files show that they
    came from a backup. The first claim must be refused (FL008); workers must log it, wait for
    `faultline epoch bump`, and go on.
    """
    cluster = Cluster(drill, standbys=0)
    load = BackgroundLoad(drill, outside=True)
    load.wait_for_commits(1, "before the backup")
    start_backup = _base_backup(drill, cluster)
    _lose_and_restore(drill, cluster, load, start_backup)
    _claims_are_refused_until_the_bump(drill, load)
    _go_on(drill, load)


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, missing_requirement=missing_requirement)
def restored_in_recovery(drill: DrillContext) -> None:
    """A lost server is replaced by a base backup plus archived WAL.

    This is point-in-time recovery (`recovery.signal`), which starts a new timeline. The epoch must
    rise with it before the first claim, without an operator.
    """
    cluster = Cluster(drill, standbys=0)
    load = BackgroundLoad(drill, outside=True)
    load.wait_for_commits(1, "before the backup")
    start_backup = _base_backup(drill, cluster, in_recovery=True)
    _lose_and_restore(drill, cluster, load, start_backup)
    _go_on(drill, load)


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, missing_requirement=missing_requirement)
def restored_dump(drill: DrillContext) -> None:
    """A lost server is replaced by a new one that a pg_dump is loaded into.

    The new server has an identity and WAL of its own. The first claim must be refused (FL008);
    workers must log it, wait for `faultline epoch bump`, and go on.
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
        # The archive has no further WAL.
        start_as(RECOVERY, server.data_dir, restore_command="false")

    def start_backup() -> ClusterMember:
        server.start()
        return ClusterMember("restored", server, database=cluster.primary.database)

    return start_backup


def _server(drill: DrillContext, *, port: int | None = None) -> Server:
    """A server beside the one to be lost; removed with the drill."""
    data_dir = drill.server.data_dir.with_name("restored")
    server = Server(data_dir, settings=MEMBER_SETTINGS, ephemeral=True, port=port)
    drill.stack.callback(server.stop, mode="immediate")
    return server


def _lose_and_restore(
    drill: DrillContext, cluster: Cluster, load: BackgroundLoad, restore: Restore
) -> None:
    """Replace the lost server by the restored one, after reading the states of both."""
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
    """Expect a refusal for any client; the workers log the reason once, and wait."""
    claims = drill.count(_CLAIMS)
    try:
        run(drill.conn, protocol.claim("operator", ["default"], batch_size=1, lease_seconds=1))
        refused = False
    except ServerChanged:
        refused = True
    drill.expect(refused, "the first claim was not refused")
    if not refused:
        return  # then the workers do not wait
    for worker in load.workers:
        drill.wait_until(
            lambda worker=worker: bool(_reasons(worker)),  # type: ignore[misc]
            f"the reason logged by {worker.name}",
            by=worker,
        )
    _bump(drill, claims)
    load.wait_for_commits(1, "after the bump")
    for worker in load.workers:
        count = len(_reasons(worker))
        drill.expect(count == 1, f"{worker.name} logged {count} times what it waits for")


def _reasons(worker: ObservedProcess) -> list[str]:
    errors = [str(each["error"]) for each in worker.events_named("database_unavailable")]
    return [reason for reason in errors if "faultline epoch bump" in reason]


def _bump(drill: DrillContext, claims: int) -> None:
    """Run `faultline epoch bump`; expect that no job was claimed before it."""
    claimed = drill.count(_CLAIMS) - claims
    drill.expect(claimed == 0, f"{claimed} jobs were claimed before the bump")
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
