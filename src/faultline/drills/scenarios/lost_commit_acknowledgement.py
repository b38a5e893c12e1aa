"""COMMIT is carried out, its answer is lost, and the connection with it.

The worker cannot know whether the payment was made. Sending it again could make it twice; reporting a
failure could have it made again by somebody else. It looks for its own entry in the ledger: the entry
is the commit, so finding it under the same token and lease is the answer that was lost. A batch of
jobs without writes of their own is simply sent again, and is told what is already its own.
"""

from __future__ import annotations

from faultline.drills.arena import Arena
from faultline.drills.crew import unfinished
from faultline.drills.nemesis.messages import is_batch_commit, is_commit
from faultline.drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline.drills.scenario import scenario
from faultline.drills.workload import note, pay, pay_by_hand


@scenario(shows=("lost_acknowledgements", "unknown_commits", "commits"))
def lost_commit_acknowledgement(arena: Arena) -> None:
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    jobs = max(2, arena.settings.jobs)

    def cut(message: Message) -> None:
        _cut(arena, proxy, message)

    for _ in range(jobs):  # each is sprung by one COMMIT
        proxy.on(Match(where=is_commit), Action.SWALLOW_REPLY, cut)
    batch = proxy.on(Match(where=is_batch_commit), Action.SWALLOW_REPLY, cut)
    for number in range(jobs):
        task = pay if number % 2 else pay_by_hand
        arena.submit(task, number=number, parts=2)
    arena.submit(note, number=jobs)
    for _ in range(arena.settings.workers):
        arena.worker(url=proxy.url)
    arena.wait_until(lambda: unfinished(arena) == 0, "the end of all jobs")
    arena.wait_until(lambda: batch.wait(0) is not None, "the end of a batch")
    again = arena.count("SELECT count(*) FROM faultline.jobs WHERE fencing_token > 1")
    arena.expect(again == 0, f"{again} jobs had taken effect, and were claimed again")


def _cut(arena: Arena, proxy: Proxy, message: Message) -> None:
    """The server has answered; nobody hears it."""
    arena.inject("lost_acknowledgement", message.application or "handler")
    proxy.route_of(connection=message.connection).reset()
