"""A handler's pooled session is terminated between two of its writes.

Half of the effect was written and is rolled back with the session. The attempt fails, and its retry
must use another connection of the pool and write the whole effect. The pool must not hand out the
dead connection.
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
    killed = max(1, round(jobs * drill.settings.fault_rate))
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    _kill_next(drill, proxy, killed)
    for number in range(jobs):
        drill.submit(pay, number=number, parts=3)
    # One job at a time, so that the second write is in the middle of an effect; and a long lease, so
    # that attempts fail instead of expiring.
    drill.worker("--concurrency", "1", "--lease-seconds", "600", url=proxy.url)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    retried = drill.count("SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'failed'")
    drill.expect(
        retried == killed, f"{killed} sessions were terminated, but {retried} attempts failed"
    )


def _kill_next(drill: DrillContext, proxy: Proxy, times: int) -> None:
    """Terminate the session at the second write from now on, so many times in a row."""

    def end_session(message: Message) -> None:
        if times > 1:  # before this attempt goes on, so that the next write counts
            _kill_next(drill, proxy, times - 1)
        drill.inject("backend_kill", message.application)
        pid = proxy.connection_of(connection=message.connection).backend_pid
        with connect(drill.url, application_name="faultline drill") as conn:
            conn.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    proxy.on(Match(where=is_effect, nth=2), Action.HOLD, end_session)
