"""A COMMIT is executed, but its reply is lost with the connection.

The worker cannot know whether the payment was made. Repeating it could pay twice, and reporting a
failure could make another worker pay again. It must look for its own ledger entry, under the same
token and lease: if it exists, the commit has happened. Nothing may be done again, inside or outside
of the database. A batch of jobs without writes is sent again, and its own entries count as
committed.
"""

from __future__ import annotations

from collections import Counter

from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_batch_commit, is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import note, pay, pay_by_hand

_LEASES = 20  # of the drill; long, since a late attempt would rightly be refused


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
    drill.wait_until(lambda: batch.wait(0) is not None, "a batch")
    # A job ends in the database before the proxy gets the reply, which it then drops.
    drill.wait_until(
        lambda: all(each.is_done for each in interceptions),
        f"the loss of {jobs} replies",
    )
    again = drill.count("SELECT count(*) FROM faultline.jobs WHERE fencing_token > 1")
    drill.expect(again == 0, f"{again} jobs were claimed again after they had taken effect")
    calls = Counter(call.job for call in drill.external_store.calls)
    drill.expect(bool(calls), "no job called the external store")
    drill.expect(
        max(calls.values(), default=0) <= 1,
        f"{sum(count > 1 for count in calls.values())} jobs called the external store twice",
    )


def _cut(drill: DrillContext, proxy: Proxy, message: Message) -> None:
    """Reset the connection after the server has replied."""
    drill.inject("lost_acknowledgement", message.application or "handler")
    proxy.connection_of(connection=message.connection).reset()
