"""The primary freezes, so that nothing is answered and nothing is reset, and a standby is promoted.

Every process of the server is stopped. Its kernel still accepts connections and acknowledges what
arrives, so neither keep-alives nor `tcp_user_timeout` notice anything. Workers and a producer wait for
answers that will not come. They cut those sessions after a limit of their own, find the new primary, and
go on: nothing is restarted, and no attempt is counted as failed. One more worker has that limit switched
off. It is the control: it waits for as long as the old primary stays frozen.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from psycopg import conninfo

from faultline.drills.arena import Arena
from faultline.drills.cluster import MEMBER_SETTINGS, Cluster, Load, expect_epochs, lacking
from faultline.drills.producer import LibraryProducer
from faultline.drills.scenario import scenario
from faultline.errors import FaultlineError
from faultline.health import file
from faultline.health.verdict import Limits, is_well
from faultline.steady import steady_now

_LEASE_SECONDS = 4.0  # its half, 2 s, is the shortest limit there is
_FOR_EVER = "300"
_FAILED = "SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'failed'"


@scenario(
    shows=("freezes", "promotions", "outages", "commits"),
    server_settings=MEMBER_SETTINGS,
    lacking=lacking,
)
def frozen_primary(arena: Arena) -> None:
    cluster = Cluster(arena)
    (standby,) = cluster.standbys
    cluster.acknowledge_after([standby])
    arena.move(conninfo.make_conninfo(arena.url, connect_timeout=2))
    lease = ("--lease-seconds", str(_LEASE_SECONDS))
    producer = LibraryProducer("producer", arena.url, arena.history, timeout_seconds=2.0)
    arena.stack.callback(producer.end)
    folder = Path(arena.stack.enter_context(TemporaryDirectory()))
    control = arena.started(
        *(*lease, "--answer-seconds", _FOR_EVER, "--health-file", str(folder / "control")),
        name="without a limit",
    )
    load = Load(arena, producer=producer, options=lease)
    load.wait_for_commits(arena.settings.jobs, "on the first primary")
    cluster.freeze_primary()
    cluster.promote(standby)
    promoted_at = time.monotonic()
    arena.move(arena.url)  # its own session was with the old primary
    load.wait_for_commits(1, "on the second")
    arena.measured["ms_until_jobs_flow"] = round(1000 * (time.monotonic() - promoted_at))
    load.wait_for_commits(arena.settings.jobs, "on the second")
    arena.expect(
        not control.heard("database_unavailable") and not control.heard("database_back"),
        "the worker without a limit still waits for the frozen server",
    )
    arena.wait_until(
        lambda: "no answer to a heartbeat" in _health(folder / "control"),
        "a health check that fails for want of heartbeats",
        by=control,
    )
    control.end()
    load.end()
    arena.expect(arena.count(_FAILED) == 0, "no attempt was counted as failed")
    arena.expect(
        all(isinstance(error, FaultlineError) for error in producer.refused),
        "the producer saw errors of Faultline's own alone",
    )
    expect_epochs(arena, 2)


def _health(path: Path) -> str:
    """What `faultline health worker` says."""
    report = file.read(path)
    return "" if report is None else is_well(report, steady_now(), Limits()).why
