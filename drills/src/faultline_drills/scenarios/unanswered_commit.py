"""A COMMIT is held up in the network while its lease lasts, and its session is cut for want of an answer.

The worker has sent the COMMIT and hears nothing for half of the lease. It cuts the session and looks into
the ledger: the job's entry is not there. It ends the lease itself, so that a COMMIT that still arrives is
refused, and hands the job back. The handler did nothing wrong, so the attempt is not charged, and the job
is run again at once instead of when its lease runs out.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_HELD = 2
_LEASE_SECONDS = "6"  # no answer is waited for longer than half of it
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
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    charged = drill.count(_ENDS, ["failed"])
    drill.expect(charged == 0, f"{charged} attempts were charged for an answer that did not come")
    released = drill.count(_ENDS, ["released"])
    drill.expect(
        released == _HELD, f"{released} of {_HELD} jobs were handed back by their own worker"
    )
