"""Work that a primary acknowledges while its standby gets no WAL, and its loss.

The jobs, payments and claims that the standby lacks are lost when it is promoted.
"""

from __future__ import annotations

from dataclasses import dataclass

from faultline_drills.clients.producer import Producer
from faultline_drills.cluster.cluster import Cluster
from faultline_drills.cluster.epochs import expect_epochs
from faultline_drills.cluster.member import ClusterMember
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.processes.stalled_worker import resume_until_done
from faultline_drills.workload.tasks import pay

_HELD = "held"  # the queue of jobs that are claimed on the old server and never finished there
LOST_WORK_SHOWS = (
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
class OldPrimaryWorkers:
    prompt: ObservedProcess  # runs its jobs at once
    late: ObservedProcess  # has claimed jobs, and is stopped
    held: int  # the number of jobs that it has claimed


def work_without_replication(
    drill: DrillContext, cluster: Cluster, standby: ClusterMember, *, url: str
) -> OldPrimaryWorkers:
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
    return OldPrimaryWorkers(prompt, late, held=half)


def submit_again(drill: DrillContext) -> None:
    """Submit the lost jobs to the new primary under the same keys, and run them."""
    half = max(2, drill.settings.jobs // 2)
    producer = Producer("producer", drill.url, drill.history)
    drill.stack.callback(producer.close)
    for number in range(half):
        for key in (f"known {number}", f"new {number}"):
            producer.submit(pay, key=key, number=number, outside=True)
    drill.worker("--queues", f"default,{_HELD}", name="successor")
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def resume_late_worker(drill: DrillContext, workers: OldPrimaryWorkers) -> None:
    """Resume the stopped worker; its stale claims must be refused everywhere."""
    resume_until_done(drill, workers.late, attempts=workers.held)
    old = [call for call in drill.external_store.calls if call.caller == str(workers.late.pid)]
    drill.expect(not any(call.accepted for call in old), "the external store accepted a late call")
    drill.expect(
        workers.prompt.is_alive, "the prompt worker ended instead of connecting to the new primary"
    )
    expect_epochs(drill, 2)
