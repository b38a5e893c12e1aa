"""A TCP proxy still leads to a demoted primary, and later to the new one.

After the switch-over it sends new connections to the old primary, now a standby; then the workers'
own sessions to the new primary and the handlers' sessions still to the standby; at last all to the
new primary. Workers and a producer must not keep a session with a read-only server: jobs run again
without a restart, and no attempt is charged, neither for a statement that the shutdown ended nor
for one that the standby refused. The control is a plain session that was opened to the standby and
kept: it still cannot write.
"""

from __future__ import annotations

import time

import psycopg
from psycopg import conninfo

from faultline.errors import FaultlineError
from faultline.postgres.sessions import connect
from faultline_drills.clients.producer import PooledProducer
from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    BackgroundLoad,
    Cluster,
    expect_epochs,
    missing_requirement,
)
from faultline_drills.context import DrillContext
from faultline_drills.proxy import MessageKind, Proxy, proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import (
    LONG_STATEMENT,
    pay,
    pay_in_long_statement,
    pay_in_long_statement_in_child,
)

_HANDLERS = "faultline handler"
_CHARGED = "SELECT count(*) FROM faultline.attempts_log WHERE outcome <> 'released'"
_CUT = (
    "SELECT count(DISTINCT a.job_id) FROM faultline.attempts_log AS a"
    " JOIN faultline.jobs AS j ON j.id = a.job_id"
    " WHERE a.outcome = 'released' AND a.error LIKE 'the server failed: %%' AND j.task LIKE '%%statement%%'"
)
_UNDER_WAY = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = %s"
# Long enough that no lease expires, which would charge an attempt.
_LEASE = ("--lease-seconds", "30", "--answer-seconds", "2")


@scenario(
    shows=("demotions", "promotions", "outages", "commits"),
    server_settings=MEMBER_SETTINGS,
    missing_requirement=missing_requirement,
)
def demoted_primary(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    old, (new,) = cluster.primary, cluster.standbys
    proxy = drill.stack.enter_context(proxy_to(_without_target(old.url)))
    drill.use_url(proxy.url)
    producer = PooledProducer("producer", drill.url, drill.history, timeout_seconds=2.0)
    drill.stack.callback(producer.end)
    load = BackgroundLoad(drill, producer=producer, options=_LEASE)
    load.wait_for_commits(drill.settings.jobs, "on the first primary")
    drill.submit(pay_in_long_statement, number=-1)
    drill.submit(pay_in_long_statement_in_child, number=-2)
    drill.wait_until(
        lambda: drill.query(_UNDER_WAY, [LONG_STATEMENT]) == [(2,)], "two running statements"
    )
    cluster.wait_until_shipped(new)
    old.server.shut_down(mode="fast")
    cluster.promote(new)
    old.follow(new)
    drill.inject("demotion", old.name)
    for worker in load.workers:
        drill.wait_until(
            lambda worker=worker: bool(worker.events_named("database_unavailable")),  # type: ignore[misc]
            f"an outage logged by {worker.name}",
            by=worker,
        )
    kept = drill.stack.enter_context(connect(proxy.url))
    drill.use_url(new.url)
    mark = proxy.message_count
    so_far = {worker: len(worker.events_named("lease_acquired")) for worker in load.workers}
    proxy.redirect(new.url, but_not=_HANDLERS)
    for worker, count in so_far.items():
        drill.wait_until(
            lambda worker=worker, count=count: len(worker.events_named("lease_acquired")) > count,  # type: ignore[misc]
            f"a claim by {worker.name} from the new primary",
            by=worker,
        )
    drill.wait_until(
        lambda: _handlers_connected(proxy, after=mark), "a handler's session to the standby"
    )
    proxy.redirect(new.url)
    redirected_at = time.monotonic()
    load.wait_for_commits(1, "on the second primary")
    drill.measured["ms_until_jobs_flow"] = round(1000 * (time.monotonic() - redirected_at))
    load.wait_for_commits(drill.settings.jobs, "on the second primary")
    drill.expect(not _can_write(kept), "a session that was kept can write on a standby")
    load.end()
    drill.expect(drill.count(_CHARGED) == 0, "an attempt was charged")
    drill.expect(drill.count(_CUT) == 2, "the attempts log lacks an interrupted statement")
    drill.expect(
        all(isinstance(error, FaultlineError) for error in producer.refused),
        "the producer got an error that is not Faultline's",
    )
    expect_epochs(drill, 2)


def _without_target(url: str) -> str:
    """The URL of a user who names one host and no target_session_attrs."""
    parts = conninfo.conninfo_to_dict(url)
    parts.pop("target_session_attrs", None)
    return conninfo.make_conninfo("", **parts)


def _handlers_connected(proxy: Proxy, *, after: int) -> bool:
    return any(
        message.kind is MessageKind.STARTUP and message.application == _HANDLERS
        for message in proxy.log
        if message.number > after
    )


def _can_write(session: psycopg.Connection[object]) -> bool:
    try:
        pay.options(conn=session).enqueue(number=0)
    except psycopg.errors.ReadOnlySqlTransaction:
        return False
    return True
