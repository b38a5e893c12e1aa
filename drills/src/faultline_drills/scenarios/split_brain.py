"""The old primary is cut off and replaced but not stopped: two take writes.

Workers and a producer are cut off together with it and go on; what it acknowledges to them is
lost, and measured. When the old primary is powered off, they must connect to the new one by
themselves, and the stale claims that one of them holds must be refused.
"""

from __future__ import annotations

from faultline_drills.clients.producer import Producer
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster, missing_requirement, multi_host_url
from faultline_drills.cluster.unreplicated_work import (
    LOST_WORK_SHOWS,
    resume_late_worker,
    submit_again,
    work_without_replication,
)
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import proxy_to
from faultline_drills.recording.database_state import LostState
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay


@scenario(
    shows=("partitions", "power_cuts", *LOST_WORK_SHOWS),
    breaks_naive=True,
    server_settings=MEMBER_SETTINGS,
    missing_requirement=missing_requirement,
)
def split_brain(drill: DrillContext) -> None:
    cluster = Cluster(drill)
    (standby,) = cluster.standbys
    to_old = drill.stack.enter_context(proxy_to(cluster.primary.url))
    to_new = drill.stack.enter_context(proxy_to(standby.url))
    drill.use_url(multi_host_url([to_old.url, standby.url]))
    beside_old = multi_host_url([cluster.primary.url, to_new.url])
    workers = work_without_replication(drill, cluster, standby, url=beside_old)
    shipped = standby.read_state()
    old = cluster.primary
    for network in (to_new, to_old):
        network.refuse_connections()
        network.reset_all()
    drill.inject("partition", old.name)
    cluster.promote(standby)
    submit_again(drill)
    _pay_once_more(drill, beside_old, workers.prompt)
    drill.lost_states.append(LostState.between(old.read_state(), shipped))
    old.power_off()
    drill.inject("power_cut", old.name)
    to_new.clear_faults()
    resume_late_worker(drill, workers)


def _pay_once_more(drill: DrillContext, url: str, prompt: ObservedProcess) -> None:
    """Enqueue and run one more job on the server at `url`, which has been replaced."""
    paid = len(prompt.events_named("commit_ok"))
    producer = Producer("producer beside the old primary", url, drill.history)
    drill.stack.callback(producer.close)
    producer.submit(pay, key="too late", number=0, outside=True)
    drill.wait_until(lambda: len(prompt.events_named("commit_ok")) > paid, "a payment", by=prompt)
