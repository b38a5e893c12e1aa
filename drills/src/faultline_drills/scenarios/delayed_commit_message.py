"""A COMMIT is under way in the network for longer than its lease lasts, and arrives in the end.

The worker has sent it and hears nothing. Meanwhile its transaction holds the job's row, so nobody can
take the job over however late it gets; but a row cannot stay locked for ever by somebody who may be
dead. The transaction carries its own limit on idling, so the server ends it, and only then may another
worker have the job. The COMMIT arrives at a session that is no more. Which of the two it will be is
decided in one place, and never both.
"""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Message, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(
    shows=("held_commits", "takeovers", "unknown_commits", "stale_rejections", "commits"),
    breaks_naive=True,
)
def delayed_commit_message(drill: DrillContext) -> None:
    jobs = drill.settings.jobs
    proxy = drill.stack.enter_context(proxy_to(drill.url))

    def cut_off(message: Message) -> None:
        proxy.blackhole()  # nor does the late worker hear that the server has lost patience

    first = proxy.on(Match(where=is_commit), Action.HOLD, cut_off)
    interceptions = [
        first,
        *(proxy.on(Match(where=is_commit), Action.HOLD) for _ in range(1, jobs)),
    ]
    for number in range(jobs):
        drill.submit(pay, number=number, parts=2)
    late = drill.worker("--concurrency", str(jobs), name="late", url=proxy.url)
    drill.wait_until(lambda: first.wait(0) is not None, "a COMMIT")
    drill.inject("held_commit", late.name)
    for number in range(drill.settings.workers):
        drill.worker(name=f"steady-{number + 1}")
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    for interception in interceptions:
        proxy.remove(interception)
    proxy.clear_faults()
    drill.wait_until(lambda: len(late.events_named("worker_exit")) >= jobs, "the late worker's end")
