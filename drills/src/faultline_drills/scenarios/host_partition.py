"""Workers and their database are on hosts of their own, and the network between the hosts fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.servers.hosted_server import HostedServer, server_on_a_host
from faultline_drills.servers.hosts import Cut, Host, lacking
from faultline_drills.workload.tasks import pay, pay_by_hand

# For a machine that is busy with other things: the claim comes after the job is queued again, a process
# says what it did a little after it did it, and a rule of the firewall takes a moment to be set.
_SLACK_SECONDS = 2.0
_FORGOTTEN_SECONDS = 10.0  # soon afterwards the server gives up the sessions of a vanished host
_NO_CRASH = {"fsync": "off"}  # of the server in these stories


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
    lacking=lacking,
)
def worker_hosts_partitioned(drill: DrillContext) -> None:
    """Five workers on hosts of their own are cut off by firewalls, or with their host, and nobody is told.

    No packet passes to or from two of them, no answer comes back to the third, and the fourth has its
    connections reset and gets no new one; the database believes every session alive. The fifth host has
    lost its power: its worker is gone, and nothing has closed its sessions. Whoever watches its own clock
    has ended its attempts before anybody else has its jobs, and those run elsewhere within the time that
    the worker named at its start. One does not watch it: when the network is healed, it comes with its
    work done, and is refused.
    """
    server = _hosted(drill)
    share = max(1, drill.settings.jobs // 5)
    lease_seconds = 2 * drill.settings.lease_seconds
    # A worker stops a tenth of the lease before it runs out: that has to be a while, for a busy machine.
    long_lease_seconds = 5 * drill.settings.lease_seconds

    def posted(name: str, *more: str, lease: float, how: Cut | None = None) -> _Posted:
        options = ("--concurrency", str(share), "--lease-seconds", str(lease), *more)
        return _posted(drill, name, "--queues", f"{name},default", *options, how=how)

    careless = posted("careless", "--no-self-fencing", lease=lease_seconds, how=Cut.BOTH_WAYS)
    careful = posted("careful", lease=long_lease_seconds, how=Cut.BOTH_WAYS)
    deaf = posted("deaf", lease=long_lease_seconds, how=Cut.REPLIES_LOST)
    refused = posted("refused", lease=long_lease_seconds, how=Cut.REFUSED)
    doomed = posted("doomed", lease=lease_seconds)
    watchful = (careful, deaf, refused)
    cut_off = (careless, *watchful, doomed)
    everybodys = ",".join(each.worker.name for each in cut_off)
    options = ("--queues", everybodys, "--concurrency", str(10 * share))
    steady = _posted(drill, "steady", *options)
    for each in (steady, *cut_off):
        _wait_for_start(drill, each.worker)
    steady.worker.stop()  # until the others have all the jobs
    have_fenced_themselves = _more([each.worker for each in watchful], "lease_lost", share)
    # Those of the others last until somebody ends them, however long it takes to cut all of them off.
    _hand_out(drill, (*watchful, doomed), share, plan={"1": "hang@start"})
    # Long enough to be cut off in the middle, short enough to be late at the commit.
    _hand_out(drill, [careless], share, work_seconds=1.2 * lease_seconds)
    steady.worker.resume()

    moments = {each.worker.name: _cut_off(drill, each, server.host) for each in cut_off}
    drill.wait_until(have_fenced_themselves, "self-fencing")
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
        lambda: len(careless.worker.events_named("worker_exit")) >= share, "the refusal of the late"
    )
    _work_again(drill, [each.worker for each in watchful])


@scenario(
    shows=("partitions", "leases_lost", "outages", "commits"),
    make_server=server_on_a_host,
    server_settings=_NO_CRASH,
    lacking=lacking,
)
def database_host_partitioned(drill: DrillContext) -> None:
    """The database's host is cut off from everybody, first in silence, then by a firewall that says so.

    There is nobody to take anything over. The workers end their attempts by their own clocks, wait, and
    do the work anew when the network is back, once.
    """
    server = _hosted(drill)
    workers = [_posted(drill, f"worker-{n + 1}", "--concurrency", "2").worker for n in range(2)]
    for worker in workers:
        _wait_for_start(drill, worker)
    for how in (Cut.BOTH_WAYS, Cut.REFUSING):
        have_claimed = _more(workers, "lease_acquired", 2)
        have_fenced_themselves = _more(workers, "lease_lost", 2, cause="deadline")
        for number in range(4):
            drill.submit(pay, number=number, plan={"1": "hang@start"})
        drill.wait_until(have_claimed, "the claims")
        server.host.cut_off(how)
        drill.inject("partition", "database", how=how.name.lower())
        drill.wait_until(have_fenced_themselves, "self-fencing")
        server.host.heal()
        drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _hosted(drill: DrillContext) -> HostedServer:
    assert isinstance(drill.server, HostedServer)  # noqa: S101 - see make_server
    return drill.server


@dataclass(frozen=True, slots=True)
class _Posted:
    """A worker on a host of its own, and how that is to be cut off; None: for good."""

    host: Host
    worker: ObservedProcess
    how: Cut | None


def _posted(drill: DrillContext, name: str, *options: str, how: Cut | None = None) -> _Posted:
    server = _hosted(drill)
    host = server.network.host(name)
    url = server.url_from_hosts(drill.url)
    return _Posted(host, host.run(lambda: drill.worker(*options, name=name, url=url)), how)


def _hand_out(drill: DrillContext, posted: Sequence[_Posted], share: int, **arguments: Any) -> None:
    """To each its share of jobs, in a queue of its own, and wait until it has claimed them."""
    have_claimed = _more([each.worker for each in posted], "lease_acquired", share)
    for each in posted:
        for number in range(share):
            drill.submit(pay_by_hand, queue=each.worker.name, number=number, **arguments)
    drill.wait_until(have_claimed, "the claims")


def _cut_off(drill: DrillContext, posted: _Posted, database: Host) -> datetime:
    """When it was."""
    moment = datetime.now(UTC)
    if posted.how is None:
        posted.host.unplug()
        posted.worker.kill()  # its last words to the database are lost
        drill.inject("vanished_host", posted.worker.name)
    else:
        posted.host.cut_off(posted.how, peer=database)
        drill.inject("partition", posted.worker.name, how=posted.how.name.lower())
    return moment


def _wait_for_start(drill: DrillContext, worker: ObservedProcess) -> None:
    drill.wait_until(lambda: bool(worker.events_named("worker_started")), "its start", by=worker)


def _more(
    workers: Sequence[ObservedProcess], event: str, count: int, **fields: Any
) -> Callable[[], bool]:
    """Whether each of them has been heard to say so that many times more than by now."""
    wanted = [(each, len(each.events_named(event, **fields)) + count) for each in workers]
    return lambda: all(len(each.events_named(event, **fields)) >= number for each, number in wanted)


def _takeovers(
    worker: ObservedProcess, other: ObservedProcess
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What the one was given, and how the other was given it next."""
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
            f"{worker.name} had not ended its attempt of job {lost['job_id']} when it was taken over:"
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
            f"job {lost['job_id']} of {worker.name} ran elsewhere after {seconds:.2f} s; it had named"
            f" {bound:g} s, and {_SLACK_SECONDS:g} s are for a busy machine",
        )


def _expect_dead_sessions(drill: DrillContext, host: Host) -> None:
    """Or the host had not vanished at all: its sockets had been closed."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE client_addr = %s::inet"
    drill.expect(drill.count(query, [host.address]) > 0, "the vanished host took leave")


def _work_again(drill: DrillContext, workers: Sequence[ObservedProcess]) -> None:
    """Healed, they are as good as before: they alone are left, and there is work until each has done some."""
    drill.stop_workers([worker for worker in drill.workers if worker not in workers])
    have_committed = _more(workers, "commit_ok", 1)

    def have_all() -> bool:
        if not have_committed() and drill.unfinished() == 0:
            for number in range(len(workers)):
                drill.submit(pay, number=number, work_seconds=0.2 * drill.settings.lease_seconds)
        return have_committed()

    drill.wait_until(have_all, "a job of each of those that were healed")


def _moment(record: dict[str, Any]) -> datetime:
    """By the clock of the machine, which all the hosts share."""
    return datetime.fromisoformat(record["at"])
