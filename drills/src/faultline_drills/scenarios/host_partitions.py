"""Workers and the database are on separate hosts, and the network fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.servers.hosted_server import HostedServer, server_on_a_host
from faultline_drills.servers.hosts import Host, HostPartition, missing_requirement
from faultline_drills.workload.tasks import pay, pay_by_hand

# For a busy machine: the claim follows the requeueing, events are logged a little later, and a firewall
# rule takes a moment to be set.
_SLACK_SECONDS = 2.0
_FORGOTTEN_SECONDS = 10.0  # then the server may end a vanished host's sessions
_NO_CRASH = {"fsync": "off"}  # the server does not crash here


@scenario(
    shows=(
        "partitions",
        "vanished_hosts",
        "leases_lost",
        "takeovers",
        "stale_rejections",
        "commits",
    ),
    breaks_naive=True,
    make_server=server_on_a_host,
    server_settings=_NO_CRASH,
    missing_requirement=missing_requirement,
)
def worker_hosts_partitioned(drill: DrillContext) -> None:
    """Five workers on separate hosts are cut off, and no session is closed.

    Two hosts lose all packets, the third gets no replies, a firewall resets the fourth's
    connections, and the fifth loses its power; the database keeps all their sessions. A worker with
    self-fencing must end its attempts before another one claims its jobs, within the time that it
    logged at its start. The worker without it commits late when the network is healed, and must be
    refused.
    """
    server = _hosted(drill)
    share = max(1, drill.settings.jobs // 5)
    lease_seconds = 2 * drill.settings.lease_seconds
    # Self-fencing ends attempts a tenth of the lease early, which must be long on a busy machine.
    long_lease_seconds = 5 * drill.settings.lease_seconds

    def start(
        name: str, *more: str, lease: float, how: HostPartition | None = None
    ) -> _HostedWorker:
        options = ("--concurrency", str(share), "--lease-seconds", str(lease), *more)
        return _start_on_host(drill, name, "--queues", f"{name},default", *options, how=how)

    careless = start(
        "careless", "--no-self-fencing", lease=lease_seconds, how=HostPartition.BOTH_WAYS
    )
    careful = start("careful", lease=long_lease_seconds, how=HostPartition.BOTH_WAYS)
    deaf = start("deaf", lease=long_lease_seconds, how=HostPartition.REPLIES_LOST)
    refused = start("refused", lease=long_lease_seconds, how=HostPartition.REFUSED)
    doomed = start("doomed", lease=lease_seconds)
    watchful = (careful, deaf, refused)
    cut_off = (careless, *watchful, doomed)
    all_queues = ",".join(each.worker.name for each in cut_off)
    options = ("--queues", all_queues, "--concurrency", str(10 * share))
    steady = _start_on_host(drill, "steady", *options)
    for each in (steady, *cut_off):
        _wait_for_start(drill, each.worker)
    steady.worker.stop()  # until the others have claimed all jobs
    have_self_fenced = _more([each.worker for each in watchful], "lease_lost", share)
    # These hang until they are ended, however long it takes to cut all hosts off.
    _hand_out(drill, (*watchful, doomed), share, plan={"1": "hang@start"})
    # Long enough to be cut off during the work, and late at the commit.
    _hand_out(drill, [careless], share, work_seconds=1.2 * lease_seconds)
    steady.worker.resume()

    moments = {each.worker.name: _cut_off(drill, each, server.host) for each in cut_off}
    drill.wait_until(have_self_fenced, "self-fencing")
    if long_lease_seconds < _FORGOTTEN_SECONDS:
        _expect_dead_sessions(drill, doomed.host)
    drill.wait_until(lambda: drill.unfinished() == 0, "the takeover")
    for each in watchful:
        _expect_fenced_before_takeover(drill, each.worker, steady.worker)
    for each in cut_off:
        _expect_recovery(drill, each.worker, steady.worker, moments[each.worker.name])

    for each in (careless, *watchful):
        each.host.heal()
    drill.wait_until(
        lambda: len(careless.worker.events_named("worker_exit")) >= share,
        "the refusal of the late commits",
    )
    _work_again(drill, [each.worker for each in watchful])


@scenario(
    shows=("partitions", "leases_lost", "outages", "commits"),
    make_server=server_on_a_host,
    server_settings=_NO_CRASH,
    missing_requirement=missing_requirement,
)
def database_host_partitioned(drill: DrillContext) -> None:
    """The database's host is cut off, first silently, then by a firewall.

    There is no other database to use. The workers must end their attempts by their own clocks,
    wait, and run the jobs once more when the network is back, each with one effect.
    """
    server = _hosted(drill)
    workers = [
        _start_on_host(drill, f"worker-{n + 1}", "--concurrency", "2").worker for n in range(2)
    ]
    for worker in workers:
        _wait_for_start(drill, worker)
    for how in (HostPartition.BOTH_WAYS, HostPartition.REFUSING):
        have_claimed = _more(workers, "lease_acquired", 2)
        have_self_fenced = _more(workers, "lease_lost", 2, cause="deadline")
        for number in range(4):
            drill.submit(pay, number=number, plan={"1": "hang@start"})
        drill.wait_until(have_claimed, "the claims")
        server.host.cut_off(how)
        drill.inject("partition", "database", how=how.name.lower())
        drill.wait_until(have_self_fenced, "self-fencing")
        server.host.heal()
        drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _hosted(drill: DrillContext) -> HostedServer:
    assert isinstance(drill.server, HostedServer)  # noqa: S101 - see make_server
    return drill.server


@dataclass(frozen=True, slots=True)
class _HostedWorker:
    """A worker on its own host, and how it is cut off; None: the host loses power."""

    host: Host
    worker: ObservedProcess
    how: HostPartition | None


def _start_on_host(
    drill: DrillContext, name: str, *options: str, how: HostPartition | None = None
) -> _HostedWorker:
    server = _hosted(drill)
    host = server.network.host(name)
    url = server.url_from_hosts(drill.url)
    return _HostedWorker(host, host.run(lambda: drill.worker(*options, name=name, url=url)), how)


def _hand_out(
    drill: DrillContext, hosted: Sequence[_HostedWorker], share: int, **arguments: Any
) -> None:
    """Enqueue jobs to each worker's own queue, and wait until it has claimed them."""
    have_claimed = _more([each.worker for each in hosted], "lease_acquired", share)
    for each in hosted:
        for number in range(share):
            drill.submit(pay_by_hand, queue=each.worker.name, number=number, **arguments)
    drill.wait_until(have_claimed, "the claims")


def _cut_off(drill: DrillContext, hosted: _HostedWorker, database: Host) -> datetime:
    """Cut the host off; the time of it."""
    moment = datetime.now(UTC)
    if hosted.how is None:
        hosted.host.unplug()
        hosted.worker.kill()  # its closing packets are lost
        drill.inject("vanished_host", hosted.worker.name)
    else:
        hosted.host.cut_off(hosted.how, peer=database)
        drill.inject("partition", hosted.worker.name, how=hosted.how.name.lower())
    return moment


def _wait_for_start(drill: DrillContext, worker: ObservedProcess) -> None:
    drill.wait_until(lambda: bool(worker.events_named("worker_started")), "its start", by=worker)


def _more(
    workers: Sequence[ObservedProcess], event: str, count: int, **fields: Any
) -> Callable[[], bool]:
    """A condition: each worker has logged so many more of these events than by now."""
    wanted = [(each, len(each.events_named(event, **fields)) + count) for each in workers]
    return lambda: all(len(each.events_named(event, **fields)) >= number for each, number in wanted)


def _takeovers(
    worker: ObservedProcess, other: ObservedProcess
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of events: one worker's claim, and the other's next claim of that job."""
    return [
        (lost, taken)
        for lost in worker.events_named("lease_acquired")
        for taken in other.events_named("lease_acquired", job_id=lost["job_id"])[:1]
    ]


def _expect_fenced_before_takeover(
    drill: DrillContext, worker: ObservedProcess, other: ObservedProcess
) -> None:
    for lost, taken in _takeovers(worker, other):
        fenced = worker.events_named("lease_lost", job_id=lost["job_id"], token=lost["token"])
        drill.expect(
            bool(fenced) and _moment(fenced[0]) < _moment(taken),
            f"{worker.name} had not ended its attempt of job {lost['job_id']} at the takeover:"
            f" {[each['at'] for each in fenced]}, {taken['at']}",
        )


def _expect_recovery(
    drill: DrillContext, worker: ObservedProcess, other: ObservedProcess, cut_at: datetime
) -> None:
    bound = float(worker.events_named("worker_started")[0]["recovery_after_silence_seconds"])
    for lost, taken in _takeovers(worker, other):
        seconds = (_moment(taken) - cut_at).total_seconds()
        drill.expect(
            seconds <= bound + _SLACK_SECONDS,
            f"job {lost['job_id']} of {worker.name} was taken over after {seconds:.2f} s; the bound"
            f" was {bound:g} s, plus {_SLACK_SECONDS:g} s for a busy machine",
        )


def _expect_dead_sessions(drill: DrillContext, host: Host) -> None:
    """The vanished host's sessions must still exist, or its sockets had been closed."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE client_addr = %s::inet"
    drill.expect(drill.count(query, [host.address]) > 0, "the vanished host's sessions were closed")


def _work_again(drill: DrillContext, workers: Sequence[ObservedProcess]) -> None:
    """Stop all other workers, and enqueue jobs until each healed worker has run one."""
    drill.stop_workers([worker for worker in drill.workers if worker not in workers])
    have_committed = _more(workers, "commit_ok", 1)

    def have_all() -> bool:
        if not have_committed() and drill.unfinished() == 0:
            for number in range(len(workers)):
                drill.submit(pay, number=number, work_seconds=0.2 * drill.settings.lease_seconds)
        return have_committed()

    drill.wait_until(have_all, "a job of each healed worker")


def _moment(record: dict[str, Any]) -> datetime:
    """By the machine's clock, which all hosts share."""
    return datetime.fromisoformat(record["at"])
