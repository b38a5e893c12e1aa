"""A handler's session is ended between two writes of its transaction, and it came from a pool.

Half of the effect has been written and is gone with the session. The attempt fails, is tried again
with another connection of the pool, and writes all of it. Half an effect is never seen, and the pool
does not hand out the connection that died.
"""

from __future__ import annotations

from faultline.database import connect
from faultline.drills.arena import Arena
from faultline.drills.nemesis.messages import is_effect
from faultline.drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline.drills.scenario import scenario
from faultline.drills.workload import pay


@scenario(shows=("backend_kills", "retries", "commits"))
def pooled_connection_lost(arena: Arena) -> None:
    jobs = arena.settings.jobs
    struck = max(1, round(jobs * arena.settings.fault_rate))
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    for _ in range(struck):
        proxy.on(
            Match(where=is_effect, nth=2),
            Action.HOLD,
            lambda message: _end_session(arena, proxy, message),
        )
    for number in range(jobs):
        arena.submit(pay, number=number, parts=3)
    arena.worker("--concurrency", "1", url=proxy.url)  # so that every second write is a second half
    arena.wait_until(lambda: arena.unfinished() == 0, "the end of all jobs")
    retried = arena.count("SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'failed'")
    arena.expect(retried == struck, f"{struck} sessions were ended, and {retried} attempts failed")


def _end_session(arena: Arena, proxy: Proxy, message: Message) -> None:
    pid = proxy.route_of(connection=message.connection).backend_pid
    with connect(arena.url, application_name="faultline drill") as conn:
        conn.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    arena.inject("backend_kill", message.application)
