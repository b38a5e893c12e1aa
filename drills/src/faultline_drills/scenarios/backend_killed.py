"""Server sessions of the workers are terminated, one after the other.

Any session may be hit: claims, heartbeats, the reconciler, a handler inside its transaction. The
first one is hit while its COMMIT is held in the network. That commit never happens, and the worker
must find out. Every job must take effect once.
"""

from __future__ import annotations

from faultline.postgres.sessions import connect
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_SESSIONS = """
    SELECT pid, application_name FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
      AND application_name ~ %s
    ORDER BY pid
"""
_ANY = "worker|committer|desk|heartbeat|handler|listener|reconciler"
_KILLS_PER_JOB = 2


@scenario(shows=("backend_kills", "unknown_commits", "outages", "commits"))
def backend_killed(drill: DrillContext) -> None:
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    on_its_way = proxy.on(
        Match(where=is_commit), Action.HOLD, lambda message: _kill_sender(drill, proxy, message)
    )
    for number in range(drill.settings.jobs):
        drill.submit(pay, number=number, parts=3, work_seconds=drill.random.uniform(0, 0.5))
    for _ in range(drill.settings.workers):
        drill.worker(url=proxy.url)
    drill.wait_until(lambda: on_its_way.wait(0) is not None, "a COMMIT")
    proxy.release(on_its_way)
    _kill_one(drill, "worker")  # it claims often, so the worker notices the loss
    for _ in range(_KILLS_PER_JOB * drill.settings.jobs - 1):
        _kill_one(drill, _ANY)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.wait_until(lambda: drill.worker_events.counts["database_unavailable"] > 0, "an outage")


def _kill_one(drill: DrillContext, purpose: str) -> None:
    """Wait for a session of that purpose, and terminate one."""
    wanted = [f"^faultline ({purpose})"]
    drill.wait_for_row(_SESSIONS, wanted, "a session of a worker")
    sessions = drill.query(_SESSIONS, wanted)
    if sessions:
        pid, name = drill.random.choice(sessions)
        if drill.query("SELECT pg_terminate_backend(%s, 1000)", [pid])[0][0]:
            drill.inject("backend_kill", name)


def _kill_sender(drill: DrillContext, proxy: Proxy, message: Message) -> None:
    """Runs in the proxy's thread, which must not use the drill's own session."""
    pid = proxy.connection_of(connection=message.connection).backend_pid
    with connect(drill.url, application_name="faultline drill") as conn:
        conn.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    drill.inject("backend_kill", message.application, at="COMMIT")
