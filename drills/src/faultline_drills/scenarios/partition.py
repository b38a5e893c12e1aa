"""The network between a worker and the database fails, in one of the ways in which networks fail."""

from __future__ import annotations

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import Action, Direction, Match, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_commit, is_fenced_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand


@scenario(
    shows=("partitions", "leases_lost", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
)
def partition_blackhole(drill: DrillContext) -> None:
    """Two workers are cut off: nothing they send arrives, nothing arrives at them, and nothing says so.

    A query on such a connection may wait for many minutes. One worker watches its own steady clock, and
    ends its attempts before their leases run out, without asking anybody. The other has that switched
    off, and was about to commit: when the network is back its late commits meet the fence.
    """
    share = max(1, drill.settings.jobs // 2)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    cut_off = proxy.on(
        Match(where=is_fenced_commit), Action.HOLD, lambda message: proxy.blackhole()
    )
    slots = ("--concurrency", str(share))
    careful = drill.worker("--queues", "careful,default", *slots, name="careful", url=proxy.url)
    for number in range(share):
        drill.submit(pay_by_hand, queue="careful", number=number, plan={"1": "hang@start"})
    _wait_for_claims(drill, share, careful)
    careless = drill.worker(
        "--no-self-fencing", "--queues", "careless", *slots, name="careless", url=proxy.url
    )
    for number in range(share, 2 * share):
        drill.submit(pay_by_hand, queue="careless", number=number)
    drill.wait_until(lambda: cut_off.wait(0) is not None, "a commit that is cut off", by=careless)
    drill.inject("partition", "careful, careless", how="blackhole")
    drill.worker("--queues", "careful,careless", name="steady-1")
    # By its own clock, while it hears nothing: the hole is still there.
    _wait_for_losses(drill, careful)
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    proxy.clear_faults()
    _wait_for_exits(drill, careless, share)
    _works_again(drill, careful)


@scenario(shows=("partitions", "leases_lost", "takeovers", "unknown_commits", "commits"))
def partition_asymmetric(drill: DrillContext) -> None:
    """What a worker sends arrives, and no answer comes back: its COMMIT has happened and it never hears so.

    Its other attempts are at work, or wait for answers to their first statements, until its own clock
    ends them. Then the connections break. It has to find out which of its commits took effect, and must
    not repeat one.
    """
    jobs = max(2, drill.settings.jobs)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    deaf = proxy.on(
        Match(where=is_commit),
        Action.FORWARD,
        lambda message: proxy.blackhole(direction=Direction.TO_CLIENT),
    )
    drill.submit(pay, number=0, work_seconds=0.3 * drill.settings.lease_seconds)
    for number in range(1, jobs):
        # Every other one is still at work then, whatever the machine does to the pace of the rest.
        plan = {"1": "hang@start"} if number % 2 else None
        work_seconds = 0.6 * drill.settings.lease_seconds
        drill.submit(pay, number=number, work_seconds=work_seconds, plan=plan)
    worker = drill.worker("--concurrency", str(jobs), name="deaf", url=proxy.url)
    drill.wait_until(lambda: deaf.wait(0) is not None, "a COMMIT")
    drill.inject("partition", worker.name, how="answers lost")
    drill.worker(name="steady-1")
    _wait_for_losses(drill, worker)
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    proxy.reset_all()
    proxy.clear_faults()
    _wait_for_exits(drill, worker, jobs)
    _works_again(drill, worker)


@scenario(shows=("partitions", "leases_lost", "takeovers", "commits"))
def partition_half_open(drill: DrillContext) -> None:
    """The server has seen the end of a worker's connections; the worker believes every one alive.

    So it is after a firewall has forgotten a connection, or a host was cut off and the other side gave
    up first. The server has freed everything that the worker's sessions held, its death is noticed at
    once, and its jobs go elsewhere. The worker sends heartbeats to nobody, until its own clock tells it
    to stop.
    """
    jobs = drill.settings.jobs
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    for number in range(jobs):
        drill.submit(pay, number=number, plan={"1": "hang@start"})
    worker = drill.worker("--concurrency", str(jobs), name="half-open", url=proxy.url)
    # A heartbeat that connects only after the cut would keep every lease.
    drill.wait_until(
        lambda: len({said["job_id"] for said in worker.events_named("lease_renewed")}) == jobs,
        "renewals",
    )
    _cut_server_side(proxy)
    drill.inject("partition", worker.name, how="half-open")
    drill.worker(name="steady-1")
    _wait_for_losses(drill, worker)
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    for connection in proxy.connections:
        connection.cut_client()  # at last the worker's own side hears of it
    _wait_for_exits(drill, worker, jobs)
    _works_again(drill, worker)


def _cut_server_side(proxy: Proxy) -> None:
    for connection in proxy.connections:
        connection.cut_server()


def _wait_for_claims(drill: DrillContext, count: int, worker: ObservedProcess) -> None:
    drill.wait_until(
        lambda: len(worker.events_named("lease_acquired")) >= count, "the claims", by=worker
    )


def _wait_for_losses(drill: DrillContext, worker: ObservedProcess) -> None:
    """Of every lease that it holds and has not sent a COMMIT for."""
    drill.wait_until(
        lambda: bool(worker.events_named("lease_lost", cause="deadline")), "self-fencing"
    )


def _wait_for_exits(drill: DrillContext, worker: ObservedProcess, count: int) -> None:
    drill.wait_until(
        lambda: len(worker.events_named("worker_exit")) >= count,
        f"the end of what {worker.name} held",
    )


def _works_again(drill: DrillContext, worker: ObservedProcess) -> None:
    """Healed, it is as good as before: it alone is left to do one more job."""
    drill.stop_workers([each for each in drill.workers if each is not worker])
    job = drill.submit(pay, number=drill.settings.jobs)
    drill.wait_for_state(job, "succeeded")
