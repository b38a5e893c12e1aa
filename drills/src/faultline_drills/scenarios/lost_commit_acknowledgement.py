"""COMMIT is carried out, its answer is lost, and the connection with it.

The worker cannot know whether the payment was made. Sending it again could make it twice; reporting a
failure could have it made again by somebody else. It looks for its own entry in the ledger: the entry
is the commit, so finding it under the same token and lease is the answer that was lost. Nothing is
done again, inside or outside. A batch of jobs without writes of their own is simply sent again, and is
told what is already its own.
"""

from __future__ import annotations

from collections import Counter

from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_batch_commit, is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay, pay_by_hand

_LEASES = 20  # of the drill's own: an attempt that is late, and rightly refused, is another story


@scenario(shows=("lost_acknowledgements", "unknown_commits", "commits"))
def lost_commit_acknowledgement(drill: DrillContext) -> None:
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    jobs = max(2, drill.settings.jobs)

    def cut(message: Message) -> None:
        _cut(drill, proxy, message)

    interceptions = [  # each takes one COMMIT
        proxy.on(Match(where=is_commit), Action.DROP_REPLY, cut) for _ in range(jobs)
    ]
    batch = proxy.on(Match(where=is_batch_commit), Action.DROP_REPLY, cut)
    for number in range(jobs):
        if number % 2:
            drill.submit(pay, number=number, parts=2, outside=True)
        else:
            drill.submit(pay_by_hand, number=number, parts=2)
    drill.submit(note, number=jobs)
    lease = str(_LEASES * drill.settings.lease_seconds)
    for _ in range(drill.settings.workers):
        drill.worker("--lease-seconds", lease, url=proxy.url)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.wait_until(lambda: batch.wait(0) is not None, "the end of a batch")
    # A job has ended in the database before its answer has reached the proxy, which then drops it.
    drill.wait_until(
        lambda: all(each.is_done for each in interceptions),
        f"the loss of {jobs} answers",
    )
    again = drill.count("SELECT count(*) FROM faultline.jobs WHERE fencing_token > 1")
    drill.expect(again == 0, f"{again} jobs had taken effect, and were claimed again")
    calls = Counter(call.job for call in drill.external_store.calls)
    drill.expect(bool(calls), "the jobs called the outside")
    drill.expect(
        max(calls.values(), default=0) <= 1,
        f"{sum(count > 1 for count in calls.values())} jobs had taken effect, and called again",
    )


def _cut(drill: DrillContext, proxy: Proxy, message: Message) -> None:
    """The server has answered; nobody hears it."""
    drill.inject("lost_acknowledgement", message.application or "handler")
    proxy.connection_of(connection=message.connection).reset()
