"""The primary is lost before its last commits reached the promoted standby.

An asynchronous standby lags behind: jobs, payments and claims that it lacks are lost. The drill
measures them, and nothing else may be lost. A worker with a claim that only the lost server knew
must not commit, and no token that the lost server issued may be issued again. The external store,
which has seen the old tokens, refuses late calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from faultline_drills.clients.producer import Producer
from faultline_drills.cluster import (
    MEMBER_SETTINGS,
    Cluster,
    ClusterMember,
    expect_epochs,
    lacking,
    multi_host_url,
)
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done
from faultline_drills.proxy import proxy_to
from faultline_drills.recording.database_state import LostState
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_HELD = "held"  # the queue of jobs that are claimed on the old server and never finished there
_SHOWN = (
    "promotions",
    "stops",
    "lost_submits",
    "lost_commits",
    "lost_claims",
    "external_refusals",
    "stale_rejections",
    "commits",
)


@dataclass(frozen=True)
class _OldPrimaryWorkers:
    prompt: ObservedProcess  # runs its jobs at once
    late: ObservedProcess  # has claimed jobs, and is stopped
    held: int  # the number of jobs that it has claimed


@scenario(
    shows=("power_cuts", *_SHOWN),
    breaks_naive=True,
    server_settings=MEMBER_SETTINGS,
    lacking=lacking,
)
def asynchronous_failover(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    workers = _work_that_is_not_shipped(drill, cluster, standby, url=drill.url)
    shipped = standby.read_state()
    lost = cluster.lose_primary()
    cluster.promote(standby)
    drill.lost_states.append(LostState.between(lost.read_from_disk(), shipped))
    _do_it_again(drill)
    _wake(drill, workers)


@scenario(
    shows=("partitions", "power_cuts", *_SHOWN),
    breaks_naive=True,
    server_settings=MEMBER_SETTINGS,
    lacking=lacking,
)
def split_brain(drill: DrillContext) -> None:
    """The old primary is cut off and replaced but not stopped: two take writes.

    Workers and a producer are cut off together with it and go on; what it acknowledges to them is
    lost, and measured. When the old primary is powered off, they must connect to the new one by
    themselves, and the stale claims that one of them holds must be refused.
    """
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    to_old = drill.stack.enter_context(proxy_to(cluster.primary.url))
    to_new = drill.stack.enter_context(proxy_to(standby.url))
    drill.use_url(multi_host_url([to_old.url, standby.url]))
    beside_old = multi_host_url([cluster.primary.url, to_new.url])
    workers = _work_that_is_not_shipped(drill, cluster, standby, url=beside_old)
    shipped = standby.read_state()
    old = cluster.primary
    for network in (to_new, to_old):
        network.refuse_connections()
        network.reset_all()
    drill.inject("partition", old.name)
    cluster.promote(standby)
    _do_it_again(drill)
    _pay_once_more(drill, beside_old, workers.prompt)
    drill.lost_states.append(LostState.between(old.read_state(), shipped))
    old.power_off()
    drill.inject("power_cut", old.name)
    to_new.clear_faults()
    _wake(drill, workers)


def _work_that_is_not_shipped(
    drill: DrillContext, cluster: Cluster, standby: ClusterMember, *, url: str
) -> _OldPrimaryWorkers:
    """Pay and claim known jobs, and enqueue new ones, while the standby gets no WAL."""
    half = max(2, drill.settings.jobs // 2)
    for number in range(half):
        drill.submit(pay, key=f"known {number}", number=number, outside=True)
        drill.submit(pay, queue=_HELD, number=number, outside=True, plan={"1": "stop@start"})
    cluster.wait_until_shipped(standby)
    standby.follow(None)
    for number in range(half):
        drill.submit(pay, key=f"new {number}", number=number, outside=True)
    prompt = drill.worker(name="prompt", url=url)
    options = ("--no-self-fencing", "--queues", _HELD, "--concurrency", str(half))
    late = drill.worker(*options, name="late", url=url)
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    drill.wait_until(
        lambda: len(prompt.events_named("commit_ok")) == 2 * half, "payments", by=prompt
    )
    return _OldPrimaryWorkers(prompt, late, held=half)


def _do_it_again(drill: DrillContext) -> None:
    """Submit the lost jobs to the new primary under the same keys, and run them."""
    half = max(2, drill.settings.jobs // 2)
    producer = Producer("producer", drill.url, drill.history)
    drill.stack.callback(producer.close)
    for number in range(half):
        for key in (f"known {number}", f"new {number}"):
            producer.submit(pay, key=key, number=number, outside=True)
    drill.worker("--queues", f"default,{_HELD}", name="successor")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _pay_once_more(drill: DrillContext, url: str, prompt: ObservedProcess) -> None:
    """Enqueue and run one more job on the server at `url`, which has been replaced."""
    paid = len(prompt.events_named("commit_ok"))
    producer = Producer("producer beside the old primary", url, drill.history)
    drill.stack.callback(producer.close)
    producer.submit(pay, key="too late", number=0, outside=True)
    drill.wait_until(lambda: len(prompt.events_named("commit_ok")) > paid, "a payment", by=prompt)


def _wake(drill: DrillContext, workers: _OldPrimaryWorkers) -> None:
    resume_until_done(drill, workers.late, attempts=workers.held)
    old = [call for call in drill.external_store.calls if call.caller == str(workers.late.pid)]
    drill.expect(not any(call.accepted for call in old), "the external store accepted a late call")
    drill.expect(
        workers.prompt.is_alive, "the prompt worker ended instead of connecting to the new primary"
    )
    expect_epochs(drill, 2)
