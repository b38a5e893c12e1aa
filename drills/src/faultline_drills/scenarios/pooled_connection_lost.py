"""A handler's session is ended between two writes of its transaction, and it came from a pool.

Half of the effect has been written and is gone with the session. The attempt fails, is tried again
with another connection of the pool, and writes all of it. Half an effect is never seen, and the pool
does not hand out the connection that died.
"""

from __future__ import annotations

from faultline.postgres.sessions import connect
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_effect
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(shows=("backend_kills", "retries", "commits"))
def pooled_connection_lost(drill: DrillContext) -> None:
    jobs = drill.settings.jobs
    struck = max(1, round(jobs * drill.settings.fault_rate))
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    _strike_next(drill, proxy, struck)
    for number in range(jobs):
        drill.submit(pay, number=number, parts=3)
    # One job at a time, so that the second write from now on is one in the middle of an effect. Attempts
    # are to fail, and no lease is to run out before they have.
    drill.worker("--concurrency", "1", "--lease-seconds", "600", url=proxy.url)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    retried = drill.count("SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'failed'")
    drill.expect(retried == struck, f"{struck} sessions were ended, and {retried} attempts failed")


def _strike_next(drill: DrillContext, proxy: Proxy, times: int) -> None:
    """At the second write from now on; then, if it was not the last time, at the second of those after it."""

    def end_session(message: Message) -> None:
        if times > 1:  # while this attempt waits: the next one's first write is to be counted
            _strike_next(drill, proxy, times - 1)
        drill.inject("backend_kill", message.application)
        pid = proxy.connection_of(connection=message.connection).backend_pid
        with connect(drill.url, application_name="faultline drill") as conn:
            conn.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    proxy.on(Match(where=is_effect, nth=2), Action.HOLD, end_session)
