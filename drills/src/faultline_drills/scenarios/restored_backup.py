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
from faultline_drills.arena import Arena, DrillNotRun
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster, Load, Member, expect_epochs, lacking
from faultline_drills.cluster.base_backup import RECOVERY, base_backup, start_as
from faultline_drills.cluster.dump import Dump
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.world import Abandoned

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
    "SELECT count(*) FROM drill.trail WHERE (before, after) = ('queued', 'running')"
)
Restore = Callable[[], Member]


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def restored_base_backup(arena: Arena) -> None:
    """A server is lost, and the base backup that was taken while it worked is started in its place.

    It has the same identity and the same timeline as the one that was lost; what gives it away is
    that its files came from a backup. The first claim is refused (FL008), workers say so and wait, and go
    on when somebody has said that this is the one: `faultline epoch bump`.
    """
    cluster = Cluster(arena, standbys=0)
    load = Load(arena, outside=True)
    load.wait_for_commits(1, "before the backup")
    lay_down = _base_backup(arena, cluster)
    _lose_and_restore(arena, cluster, load, lay_down)
    _claims_are_refused_until_the_bump(arena, load)
    _go_on(arena, load)


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def restored_in_recovery(arena: Arena) -> None:
    """A server is lost, and a base backup is recovered in its place as far as the archived log goes.

    That is how a point in time is restored (`recovery.signal`), and PostgreSQL begins a new timeline at its
    end. The epoch rises with it, before the first claim, and nobody has to say anything.
    """
    cluster = Cluster(arena, standbys=0)
    load = Load(arena, outside=True)
    load.wait_for_commits(1, "before the backup")
    lay_down = _base_backup(arena, cluster, in_recovery=True)
    _lose_and_restore(arena, cluster, load, lay_down)
    _go_on(arena, load)


@scenario(shows=_SHOWN, server_settings=MEMBER_SETTINGS, lacking=lacking)
def restored_dump(arena: Arena) -> None:
    """A server is lost, and what `pg_dump` wrote while it worked is loaded into a new one in its place.

    The new server has an identity of its own, and a log that begins anew. The first claim is refused
    (FL008), workers say so and wait, and go on when somebody has said that this is the one:
    `faultline epoch bump`.
    """
    cluster = Cluster(arena, standbys=0)
    load = Load(arena, outside=True)
    load.wait_for_commits(1, "before the dump")
    dump = Dump.of(cluster.primary)
    fresh = _server(arena)
    _lose_and_restore(arena, cluster, load, lambda: dump.restore(fresh))
    _claims_are_refused_until_the_bump(arena, load)
    _go_on(arena, load)


def _base_backup(arena: Arena, cluster: Cluster, *, in_recovery: bool = False) -> Restore:
    server = _server(arena)
    base_backup(cluster.primary.server, server.data_dir)
    if in_recovery:
        start_as(RECOVERY, server.data_dir, restore_command="false")  # the archive has nothing more

    def lay_down() -> Member:
        server.start()
        return Member("restored", server, database=cluster.primary.database)

    return lay_down


def _server(arena: Arena, *, port: int | None = None) -> Server:
    """Beside the one that will be lost, and gone with the drill."""
    data_dir = arena.server.data_dir.with_name("restored")
    server = Server(data_dir, settings=MEMBER_SETTINGS, ephemeral=True, port=port)
    arena.stack.callback(server.stop, mode="immediate")
    return server


def _lose_and_restore(arena: Arena, cluster: Cluster, load: Load, restore: Restore) -> None:
    """In the lost server's place; what is there to go on from is read before anybody can find it."""
    load.wait_for_commits(arena.settings.jobs, "after the backup")
    lost = cluster.lose_primary()
    port = lost.port
    restored = restore()
    arena.abandoned.append(Abandoned.between(lost.exhume(), restored.world()))
    restored.server.shut_down()
    in_place = _server(arena, port=port)
    in_place.start()
    arena.inject("restore", in_place.data_dir.name)


def _claims_are_refused_until_the_bump(arena: Arena, load: Load) -> None:
    """To whoever asks, worker or not; the workers say what they wait for, and do not give up."""
    claims = arena.count(_CLAIMS)
    try:
        run(arena.conn, protocol.claim("operator", ["default"], batch_size=1, lease_seconds=1))
        refused = False
    except ServerChanged:
        refused = True
    arena.expect(refused, "the first claim is refused")
    if not refused:
        return  # then nobody has anything to wait for
    for worker in load.workers:
        arena.wait_until(
            lambda worker=worker: bool(_reasons(worker)),  # type: ignore[misc]
            f"{worker.name} saying what it waits for",
            by=worker,
        )
    _bump(arena, claims)
    load.wait_for_commits(1, "after the bump")
    for worker in load.workers:
        said = len(_reasons(worker))
        arena.expect(said == 1, f"{worker.name} said {said} times what it waits for")


def _reasons(worker: Witness) -> list[str]:
    said = [str(each["error"]) for each in worker.heard("database_unavailable")]
    return [reason for reason in said if "faultline epoch bump" in reason]


def _bump(arena: Arena, claims: int) -> None:
    """As an operator does; until then there are as many claims as the backup brought along."""
    granted = arena.count(_CLAIMS) - claims
    arena.expect(granted == 0, f"{granted} jobs were claimed before the bump")
    done = subprocess.run(
        [sys.executable, "-m", "faultline", "epoch", "bump", "--yes", "--reason", "restored"],
        env=environment_with(arena.url),
        capture_output=True,
        text=True,
        timeout=arena.settings.timeout_seconds,
        check=False,
    )
    if done.returncode:
        raise DrillNotRun(f"faultline epoch bump ended with {done.returncode}: {done.stderr}")


def _go_on(arena: Arena, load: Load) -> None:
    load.wait_for_commits(arena.settings.jobs, "on the restored server")
    load.end()
    expect_epochs(arena, 2)
