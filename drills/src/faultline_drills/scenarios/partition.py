"""The network between a worker and the database fails, in one of the ways in which networks fail."""

from __future__ import annotations

from faultline_drills.arena import Arena
from faultline_drills.nemesis.messages import is_commit, is_fenced_commit
from faultline_drills.proxy import Action, Direction, Match, Proxy, proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.workload import pay, pay_by_hand


@scenario(
    shows=("partitions", "leases_lost", "takeovers", "stale_rejections", "commits"),
    breaks_naive=True,
)
def partition_blackhole(arena: Arena) -> None:
    """Two workers are cut off: nothing they send arrives, nothing arrives at them, and nothing says so.

    A query on such a connection may wait for many minutes. One worker watches its own steady clock, and
    ends its attempts before their leases run out, without asking anybody. The other has that switched
    off, and was about to commit: when the network is back its late commits meet the fence.
    """
    share = max(1, arena.settings.jobs // 2)
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    cut_off = proxy.on(
        Match(where=is_fenced_commit), Action.HOLD, lambda message: proxy.blackhole()
    )
    slots = ("--concurrency", str(share))
    careful = arena.worker("--queues", "careful,default", *slots, name="careful", url=proxy.url)
    for number in range(share):
        arena.submit(pay_by_hand, queue="careful", number=number, plan={"1": "hang@start"})
    _wait_for_claims(arena, share, careful)
    careless = arena.worker(
        "--no-self-fencing", "--queues", "careless", *slots, name="careless", url=proxy.url
    )
    for number in range(share, 2 * share):
        arena.submit(pay_by_hand, queue="careless", number=number)
    arena.wait_until(lambda: cut_off.wait(0) is not None, "a commit that is cut off", by=careless)
    arena.inject("partition", "careful, careless", how="blackhole")
    arena.worker("--queues", "careful,careless", name="steady-1")
    # By its own clock, while it hears nothing: the hole is still there.
    _wait_for_losses(arena, careful)
    arena.wait_until(lambda: arena.unfinished() == 0, "the takeover")
    proxy.flow()
    _wait_for_exits(arena, careless, share)
    _works_again(arena, careful)


@scenario(shows=("partitions", "leases_lost", "takeovers", "unknown_commits", "commits"))
def partition_asymmetric(arena: Arena) -> None:
    """What a worker sends arrives, and no answer comes back: its COMMIT has happened and it never hears so.

    Its other attempts are at work, or wait for answers to their first statements, until its own clock
    ends them. Then the connections break. It has to find out which of its commits took effect, and must
    not repeat one.
    """
    jobs = max(2, arena.settings.jobs)
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    deaf = proxy.on(
        Match(where=is_commit),
        Action.FORWARD,
        lambda message: proxy.blackhole(direction=Direction.TO_CLIENT),
    )
    arena.submit(pay, number=0, work_seconds=0.3 * arena.settings.lease_seconds)
    for number in range(1, jobs):
        # Every other one is still at work then, whatever the machine does to the pace of the rest.
        plan = {"1": "hang@start"} if number % 2 else None
        work_seconds = 0.6 * arena.settings.lease_seconds
        arena.submit(pay, number=number, work_seconds=work_seconds, plan=plan)
    worker = arena.worker("--concurrency", str(jobs), name="deaf", url=proxy.url)
    arena.wait_until(lambda: deaf.wait(0) is not None, "a COMMIT")
    arena.inject("partition", worker.name, how="answers lost")
    arena.worker(name="steady-1")
    _wait_for_losses(arena, worker)
    arena.wait_until(lambda: arena.unfinished() == 0, "the takeover")
    proxy.reset_all()
    proxy.flow()
    _wait_for_exits(arena, worker, jobs)
    _works_again(arena, worker)


@scenario(shows=("partitions", "leases_lost", "takeovers", "commits"))
def partition_half_open(arena: Arena) -> None:
    """The server has seen the end of a worker's connections; the worker believes every one alive.

    So it is after a firewall has forgotten a connection, or a host was cut off and the other side gave
    up first. The server has freed everything that the worker's sessions held, its death is noticed at
    once, and its jobs go elsewhere. The worker sends heartbeats to nobody, until its own clock tells it
    to stop.
    """
    jobs = arena.settings.jobs
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    for number in range(jobs):
        arena.submit(pay, number=number, plan={"1": "hang@start"})
    worker = arena.worker("--concurrency", str(jobs), name="half-open", url=proxy.url)
    # A heartbeat that connects only after the cut would keep every lease.
    arena.wait_until(
        lambda: len({said["job_id"] for said in worker.heard("lease_renewed")}) == jobs, "renewals"
    )
    _cut_server_side(proxy)
    arena.inject("partition", worker.name, how="half-open")
    arena.worker(name="steady-1")
    _wait_for_losses(arena, worker)
    arena.wait_until(lambda: arena.unfinished() == 0, "the takeover")
    for route in proxy.routes:
        route.cut_client()  # at last the worker's own side hears of it
    _wait_for_exits(arena, worker, jobs)
    _works_again(arena, worker)


def _cut_server_side(proxy: Proxy) -> None:
    for route in proxy.routes:
        route.cut_server()


def _wait_for_claims(arena: Arena, count: int, worker: Witness) -> None:
    arena.wait_until(lambda: len(worker.heard("lease_acquired")) >= count, "the claims", by=worker)


def _wait_for_losses(arena: Arena, worker: Witness) -> None:
    """Of every lease that it holds and has not sent a COMMIT for."""
    arena.wait_until(lambda: bool(worker.heard("lease_lost", cause="deadline")), "self-fencing")


def _wait_for_exits(arena: Arena, worker: Witness, count: int) -> None:
    arena.wait_until(
        lambda: len(worker.heard("worker_exit")) >= count, f"the end of what {worker.name} held"
    )


def _works_again(arena: Arena, worker: Witness) -> None:
    """Healed, it is as good as before: it alone is left to do one more job."""
    arena.dismiss([each for each in arena.workers if each is not worker])
    job = arena.submit(pay, number=arena.settings.jobs)
    arena.wait_for_state(job, "succeeded")
