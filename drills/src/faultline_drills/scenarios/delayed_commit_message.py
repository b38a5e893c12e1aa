"""A COMMIT is delayed in the network for longer than its lease.

The worker has sent it and gets no reply. Its transaction locks the job's row, so no other worker
can claim the job. PostgreSQL ends the transaction by the idle limit that it carries; only then may
another worker claim the job, and the late COMMIT reaches a session that has ended. Exactly one of
the two may take effect.
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
        proxy.blackhole()  # so that the worker does not notice that its session ended

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
    drill.wait_until(
        lambda: len(late.events_named("worker_exit")) >= jobs,
        "the end of its attempts",
    )
