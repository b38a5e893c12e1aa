"""The primary is lost with its last seconds, which had not reached the standby that takes its place.

A standby that is not waited for lags behind, and what it lacks is gone: jobs that were acknowledged,
payments that were made, claims. That is measured, and nothing else may be lost. What must not happen
is that the past comes back: a worker that holds a claim which only the lost server knew of cannot
commit, and no token that was given out over there is given out again over here. The outside, which has
seen the old ones, refuses whoever comes late with one.
"""

from __future__ import annotations

from dataclasses import dataclass

from faultline_drills.arena import Arena
from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    Cluster,
    Member,
    as_one,
    expect_epochs,
    lacking,
)
from faultline_drills.lateness import wake_to_the_end
from faultline_drills.producer import Producer
from faultline_drills.proxy import proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.workload import pay
from faultline_drills.world import Abandoned

_HELD = "held"  # the queue of the jobs that are claimed on the old server, and are not done there
_SHOWN = (
    "promotions",
    "stops",
    "lost_submits",
    "lost_commits",
    "lost_claims",
    "outside_refusals",
    "stale_rejections",
    "commits",
)


@dataclass(frozen=True)
class _OldServersWorkers:
    prompt: Witness  # pays at once
    late: Witness  # has claimed, and stands still
    held: int  # how many jobs the late one has


@scenario(
    shows=("power_cuts", *_SHOWN),
    breaks_naive=True,
    server_settings=MEMBER_SETTINGS,
    lacking=lacking,
)
def asynchronous_failover(arena: Arena) -> None:
    cluster = Cluster(arena)
    (standby,) = cluster.standbys
    workers = _work_that_is_not_shipped(arena, cluster, standby, url=arena.url)
    shipped = standby.world()
    lost = cluster.lose_primary()
    cluster.promote(standby)
    arena.abandoned.append(Abandoned.between(lost.exhume(), shipped))
    _do_it_again(arena)
    _wake(arena, workers)


@scenario(
    shows=("partitions", "power_cuts", *_SHOWN),
    breaks_naive=True,
    server_settings=MEMBER_SETTINGS,
    lacking=lacking,
)
def primary_left_alive(arena: Arena) -> None:
    """The primary is cut off and replaced, and nobody has switched it off: two servers take writes.

    Its workers and a producer are cut off with it, and go on: a job is taken and paid, and they are told
    so, by a server whose word no longer counts. All of that is lost, and measured. When the old server is
    switched off at last they go over to the new one, one of them with claims in its hands.
    """
    cluster = Cluster(arena)
    (standby,) = cluster.standbys
    to_old = arena.stack.enter_context(proxy_to(cluster.primary.url))
    to_new = arena.stack.enter_context(proxy_to(standby.url))
    arena.move(as_one([to_old.url, standby.url]))
    beside_old = as_one([cluster.primary.url, to_new.url])
    workers = _work_that_is_not_shipped(arena, cluster, standby, url=beside_old)
    shipped = standby.world()
    old = cluster.primary
    for network in (to_new, to_old):
        network.refuse_connections()
        network.reset_all()
    arena.inject("partition", old.name)
    cluster.promote(standby)
    _do_it_again(arena)
    _pay_once_more(arena, beside_old, workers.prompt)
    arena.abandoned.append(Abandoned.between(old.world(), shipped))
    old.power_off()
    arena.inject("power_cut", old.name)
    to_new.flow()
    _wake(arena, workers)


def _work_that_is_not_shipped(
    arena: Arena, cluster: Cluster, standby: Member, *, url: str
) -> _OldServersWorkers:
    """Jobs that the standby knows are paid or claimed behind its back; others it never hears of."""
    half = max(2, arena.settings.jobs // 2)
    for number in range(half):
        arena.submit(pay, key=f"known {number}", number=number, outside=True)
        arena.submit(pay, queue=_HELD, number=number, outside=True, plan={"1": "stop@start"})
    cluster.wait_until_shipped(standby)
    standby.follow(None)
    for number in range(half):
        arena.submit(pay, key=f"new {number}", number=number, outside=True)
    prompt = arena.worker(name="prompt", url=url)
    options = ("--no-self-fencing", "--queues", _HELD, "--concurrency", str(half))
    late = arena.worker(*options, name="late", url=url)
    arena.wait_until(lambda: late.is_stopped, "the stall", by=late)
    arena.inject("stop", late.name)
    arena.wait_until(lambda: len(prompt.heard("commit_ok")) == 2 * half, "payments", by=prompt)
    return _OldServersWorkers(prompt, late, held=half)


def _do_it_again(arena: Arena) -> None:
    """On the new primary: what the old one took with it is submitted under the same keys, and paid."""
    half = max(2, arena.settings.jobs // 2)
    producer = Producer("producer", arena.url, arena.history)
    arena.stack.callback(producer.close)
    for number in range(half):
        for key in (f"known {number}", f"new {number}"):
            producer.submit(pay, key=key, number=number, outside=True)
    arena.worker("--queues", f"default,{_HELD}", name="successor")
    arena.wait_until(lambda: arena.unfinished() == 0, "the end of all jobs")


def _pay_once_more(arena: Arena, url: str, prompt: Witness) -> None:
    """By the word of the server at `url`, which has been replaced."""
    paid = len(prompt.heard("commit_ok"))
    producer = Producer("producer beside the old primary", url, arena.history)
    arena.stack.callback(producer.close)
    producer.submit(pay, key="too late", number=0, outside=True)
    arena.wait_until(lambda: len(prompt.heard("commit_ok")) > paid, "a payment", by=prompt)


def _wake(arena: Arena, workers: _OldServersWorkers) -> None:
    wake_to_the_end(arena, workers.late, attempts=workers.held)
    old = [call for call in arena.sink.calls if call.caller == str(workers.late.pid)]
    arena.expect(not any(call.accepted for call in old), "the outside refuses late calls")
    arena.expect(workers.prompt.is_alive, "the worker that was not late went over by itself")
    expect_epochs(arena, 2)
