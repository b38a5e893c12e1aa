"""The network between a worker and the database fails, in three ways."""

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
    """Two workers are cut off: no packet passes, and no connection is closed.

    A query on such a connection may hang for minutes. One worker watches its monotonic clock, and
    must end its attempts before their leases expire. The other one has self-fencing off and was
    about to commit: when the network is back, its late commits must be refused.
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
    # By its own clock: the blackhole still exists.
    _wait_for_losses(drill, careful)
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    proxy.clear_faults()
    _wait_for_exits(drill, careless, share)
    _works_again(drill, careful)


@scenario(shows=("partitions", "leases_lost", "takeovers", "unknown_commits", "commits"))
def partition_asymmetric(drill: DrillContext) -> None:
    """A worker's messages arrive, but no reply comes back, not even to a COMMIT.

    Its other attempts run, or wait for replies, until its own clock ends them; then the connections
    break. The worker must find out which of its commits took effect, and must not repeat one.
    """
    jobs = max(2, drill.settings.jobs)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    cut = proxy.on(
        Match(where=is_commit),
        Action.FORWARD,
        lambda message: proxy.blackhole(direction=Direction.TO_CLIENT),
    )
    drill.submit(pay, number=0, work_seconds=0.3 * drill.settings.lease_seconds)
    for number in range(1, jobs):
        # Every second job is still running then, on a machine of any speed.
        plan = {"1": "hang@start"} if number % 2 else None
        work_seconds = 0.6 * drill.settings.lease_seconds
        drill.submit(pay, number=number, work_seconds=work_seconds, plan=plan)
    worker = drill.worker("--concurrency", str(jobs), name="cut-off", url=proxy.url)
    drill.wait_until(lambda: cut.wait(0) is not None, "a COMMIT")
    drill.inject("partition", worker.name, how="replies lost")
    drill.worker(name="steady-1")
    _wait_for_losses(drill, worker)
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    proxy.reset_all()
    proxy.clear_faults()
    _wait_for_exits(drill, worker, jobs)
    _works_again(drill, worker)


@scenario(shows=("partitions", "leases_lost", "takeovers", "commits"))
def partition_half_open(drill: DrillContext) -> None:
    """The server has closed a worker's connections; the worker does not know it.

    This happens after a firewall has dropped a connection's state. The server releases everything
    that the sessions held, so the loss of the worker is noticed at once and its jobs are requeued.
    The worker's heartbeats get no reply, and its own clock must end its attempts.
    """
    jobs = drill.settings.jobs
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    for number in range(jobs):
        drill.submit(pay, number=number, plan={"1": "hang@start"})
    # On a busy machine, a lease of the usual length could expire before its first renewal.
    slots = ("--concurrency", str(jobs), "--lease-seconds", str(2 * drill.settings.lease_seconds))
    worker = drill.worker(*slots, name="half-open", url=proxy.url)
    # A heartbeat session that is opened after the cut would renew every lease.
    drill.wait_until(lambda: _has_renewed_all(worker, jobs), "renewals", by=worker)
    _cut_server_side(proxy)
    drill.inject("partition", worker.name, how="half-open")
    drill.worker(name="steady-1")
    _wait_for_losses(drill, worker)
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    for connection in proxy.connections:
        connection.cut_client()  # now the worker's side is closed too
    _wait_for_exits(drill, worker, jobs)
    _works_again(drill, worker)


def _cut_server_side(proxy: Proxy) -> None:
    for connection in proxy.connections:
        connection.cut_server()


def _has_renewed_all(worker: ObservedProcess, jobs: int) -> bool:
    """Whether the worker has claimed all jobs and renewed each one that it still runs."""
    claimed, ended, renewed = (
        {event["job_id"] for event in worker.events_named(name)}
        for name in ("lease_acquired", "worker_exit", "lease_renewed")
    )
    running = claimed - ended
    return len(claimed) == jobs and bool(running) and running <= renewed


def _wait_for_claims(drill: DrillContext, count: int, worker: ObservedProcess) -> None:
    drill.wait_until(
        lambda: len(worker.events_named("lease_acquired")) >= count, "the claims", by=worker
    )


def _wait_for_losses(drill: DrillContext, worker: ObservedProcess) -> None:
    """Wait until self-fencing has ended an attempt."""
    drill.wait_until(
        lambda: bool(worker.events_named("lease_lost", cause="deadline")), "self-fencing"
    )


def _wait_for_exits(drill: DrillContext, worker: ObservedProcess, count: int) -> None:
    drill.wait_until(
        lambda: len(worker.events_named("worker_exit")) >= count,
        f"the end of all attempts of {worker.name}",
    )


def _works_again(drill: DrillContext, worker: ObservedProcess) -> None:
    """Stop all other workers; the healed one must run one more job."""
    drill.stop_workers([each for each in drill.workers if each is not worker])
    job = drill.submit(pay, number=drill.settings.jobs)
    drill.wait_for_state(job, "succeeded")
