"""The primary freezes, so that no query is answered, and a standby is promoted.

Every process of the server is stopped, but its kernel still acknowledges packets, so neither
keepalives nor `tcp_user_timeout` notice it. Workers and a producer must end these sessions after a
limit of their own, find the new primary, and go on: nothing is restarted, and no attempt is
charged. Two handlers wait in statements of their own, one of them in a child process; their worker
must end these sessions too. The control is a worker without that limit: it waits for as long as the
old primary stays frozen.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from psycopg import conninfo

from faultline.errors import FaultlineError
from faultline.health import health_file
from faultline.health.probe import Limits, is_well
from faultline.steady import steady_now
from faultline_drills.clients.producer import PooledProducer
from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    BackgroundLoad,
    Cluster,
    expect_epochs,
    missing_requirement,
)
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import (
    LONG_STATEMENT,
    pay_in_long_statement,
    pay_in_long_statement_in_child,
)

# The shortest limit, and a lease that does not expire, which would charge an attempt.
_LIMITED = ("--answer-seconds", "2", "--lease-seconds", "30")
_WITHOUT_LIMIT = ("--answer-seconds", "300", "--lease-seconds", "4", "--queues", "elsewhere")
_CHARGED = "SELECT count(*) FROM faultline.attempts_log WHERE outcome <> 'released'"
_UNDER_WAY = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = %s"


@scenario(
    shows=("freezes", "promotions", "outages", "commits"),
    server_settings=MEMBER_SETTINGS,
    missing_requirement=missing_requirement,
)
def frozen_primary(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    cluster.acknowledge_after([standby])
    drill.use_url(conninfo.make_conninfo(drill.url, connect_timeout=2))
    producer = PooledProducer("producer", drill.url, drill.history, timeout_seconds=2.0)
    drill.stack.callback(producer.end)
    folder = Path(drill.stack.enter_context(TemporaryDirectory()))
    control = drill.started_worker(
        *_WITHOUT_LIMIT, "--health-file", str(folder / "control"), name="without a limit"
    )
    load = BackgroundLoad(drill, producer=producer, options=_LIMITED)
    load.wait_for_commits(drill.settings.jobs, "on the first primary")
    drill.submit(pay_in_long_statement, number=-1)
    drill.submit(pay_in_long_statement_in_child, number=-2)
    drill.wait_until(
        lambda: drill.query(_UNDER_WAY, [LONG_STATEMENT]) == [(2,)], "two running statements"
    )
    cluster.freeze_primary()
    cluster.promote(standby)
    promoted_at = time.monotonic()
    drill.use_url(drill.url)  # drops the session to the old primary
    load.wait_for_commits(1, "on the second")
    drill.measured["ms_until_jobs_flow"] = round(1000 * (time.monotonic() - promoted_at))
    load.wait_for_commits(drill.settings.jobs, "on the second")
    drill.expect(
        not control.events_named("database_unavailable")
        and not control.events_named("database_back"),
        "the worker without a limit does not wait for the frozen server",
    )
    drill.wait_until(
        lambda: "no answer to a heartbeat" in _health(folder / "control"),
        "a health check that fails for lack of heartbeats",
        by=control,
    )
    control.end()
    load.end()
    drill.expect(drill.count(_CHARGED) == 0, "an attempt was charged")
    drill.expect(
        all(isinstance(error, FaultlineError) for error in producer.refused),
        "the producer got an error that is not Faultline's",
    )
    expect_epochs(drill, 2)


def _health(path: Path) -> str:
    """The reason that `faultline health worker` gives."""
    report = health_file.read(path)
    return "" if report is None else is_well(report, steady_now(), Limits()).why
