"""A COMMIT gets no reply while its lease lasts, and its session is cut.

The worker has sent it and gets no reply for half of the lease. It must cut the session, find no
ledger entry, end the lease itself, so that a late COMMIT is refused, and release the job. The
handler did nothing wrong, so no attempt may be charged, and the job must run again at once.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_HELD = 2
_LEASE_SECONDS = "6"  # the worker waits for a reply for half of it
_ENDS = "SELECT count(*) FROM faultline.attempts_log WHERE outcome = %s"


@scenario(shows=("held_commits", "unknown_commits", "released", "commits"))
def unanswered_commit(drill: DrillContext) -> None:
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    interceptions = [proxy.on(Match(where=is_commit), Action.HOLD) for _ in range(_HELD)]
    for number in range(_HELD):
        drill.submit(pay, number=number, parts=2)
    options = ("--concurrency", str(_HELD), "--lease-seconds", _LEASE_SECONDS)
    drill.worker(*options, url=proxy.url)
    drill.wait_until(lambda: all(each.is_done for each in interceptions), "each COMMIT")
    for _ in interceptions:
        drill.inject("held_commit")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    charged = drill.count(_ENDS, ["failed"])
    drill.expect(charged == 0, f"{charged} attempts were charged for a missing reply")
    released = drill.count(_ENDS, ["released"])
    drill.expect(released == _HELD, f"{released} of {_HELD} jobs were released by their own worker")
