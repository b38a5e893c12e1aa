"""Section of the report: recovery of the job of a killed or stopped worker."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import UUID

from benchmarks.goal import Goal
from benchmarks.peer_recovery import BOUND_SECONDS, PeerRecovery, measure_peer
from benchmarks.section import Section, SectionContext
from benchmarks.tables import table
from benchmarks.trial import TrialServers
from faultline.config import WorkerSettings
from faultline.postgres.sessions import Connection, connect
from faultline.postgres.sessions import run as run_statement
from faultline.statements import protocol
from faultline_drills.judging.measures import quantile
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.recovery import measure_recovery
from faultline_drills.recovery.endless_task import linger
from faultline_drills.report.plots import INK, new_figure
from faultline_drills.servers.scratch_database import scratch_database
from faultline_drills.subjects import Subject, install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KILLS, _KILLS_IN_SHORT = 50, 5
# A stopped worker is noticed when its lease expires, so several are stopped at once.
_STOP_ROUNDS, _STOPS_AT_A_TIME, _STOPS_IN_SHORT = 5, 10, 3  # rounds with --all, else one
_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.005
_HEAD = ("queue", "signal", "n", "p50 s", "p95 s", "max s")
_STARTS = """
    CREATE SCHEMA recovery;
    CREATE TABLE recovery.starts (job_id uuid, token bigint, pid int, PRIMARY KEY (job_id, token));
"""


def run(context: SectionContext) -> Section:
    kills = _KILLS_IN_SHORT if context.short else _KILLS
    killed: list[float] = []

    def count(seconds: float) -> None:
        killed.append(seconds)
        context.progress(f"recovery: killed {len(killed)} of {kills} workers")

    with scratch_database(context.server.url) as url:
        install(Subject.FAULTLINE, url)
        measure_recovery(url, kills=kills, on_kill=count)
    with scratch_database(context.server.url) as url:
        install(Subject.FAULTLINE, url)
        stopped = measure_stops(
            url,
            rounds=_STOP_ROUNDS if context.everything else 1,
            at_a_time=_STOPS_IN_SHORT if context.short else _STOPS_AT_A_TIME,
            seed=context.seed,
            progress=context.progress,
        )
    return as_section(killed, stopped, _peers(context) if context.everything else [])


def _peers(context: SectionContext) -> list[PeerRecovery]:
    """Measure the peers whose peer.toml has `recovery`; each takes a minute or more."""
    recoverable = [(peer, program) for peer, program in context.peers if peer.recovery]
    measured = []
    for peer, program in recoverable:
        context.progress(f"recovery: killing workers of {peer.title}, up to {BOUND_SECONDS:g} s")
        servers = TrialServers(context.server, None)
        measured.append(measure_peer(servers, peer, program, seed=context.seed))
    return measured


def measure_stops(
    url: str, *, rounds: int, at_a_time: int, seed: int, progress: Callable[[str], None]
) -> list[float]:
    """Stop workers that run a job; return the seconds until each job runs elsewhere.

    Each job has its own queue and two workers at default settings, so that no worker holds two of the jobs.
    """
    measured: list[float] = []
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    with connect(url, application_name="faultline bench") as conn:
        conn.execute(_STARTS)
        for number in range(rounds):
            progress(f"recovery: stopping workers, {len(measured)} of {rounds * at_a_time} so far")
            queues = [f"stop-{number}-{pair}" for pair in range(at_a_time)]
            with ExitStack() as processes:
                for queue in queues * 2:
                    _start_worker(processes, url, queue)
                measured += _stop_once(conn, queues, chance)
    return measured


def _start_worker(processes: ExitStack, url: str, queue: str) -> None:
    app = "faultline_drills.recovery.endless_task:app"
    process = ObservedProcess("worker", app=app, url=url, options=["--queues", queue])
    processes.callback(process.end)


def _stop_once(conn: Connection, queues: Sequence[str], chance: random.Random) -> list[float]:
    _wait_until(lambda: _registered(conn) == 2 * len(queues), "the workers did not start")
    jobs = [linger.options(conn=conn, queue=queue).enqueue().job_id for queue in queues]
    _wait_until(lambda: len(_starts(conn, jobs, 1)) == len(jobs), "the jobs did not start")
    # At a random point between two heartbeats, because the rest of the lease depends on it.
    began, heartbeat = time.monotonic(), WorkerSettings().heartbeat_seconds
    moments = sorted(began + chance.uniform(0, heartbeat) for _ in jobs)
    stopped_at = {}
    for moment, (job, pid) in zip(moments, _starts(conn, jobs, 1).items(), strict=True):
        time.sleep(max(0.0, moment - time.monotonic()))
        os.kill(pid, signal.SIGSTOP)
        stopped_at[job] = time.monotonic()
    seconds: dict[UUID, float] = {}

    def all_seen() -> bool:
        for job in _starts(conn, jobs, 2):
            seconds.setdefault(job, time.monotonic() - stopped_at[job])
        return len(seconds) == len(jobs)

    _wait_until(all_seen, "a stopped worker's job did not run elsewhere")
    for job in jobs:
        run_statement(conn, protocol.cancel(job))
    conn.execute("DELETE FROM faultline.workers")  # the next round counts its own workers
    return [seconds[job] for job in jobs]


def _registered(conn: Connection) -> int:
    query = "SELECT count(*) FROM faultline.workers WHERE last_heartbeat_at > started_at"
    row = conn.execute(query).fetchone()
    return int(row[0]) if row else 0


def _starts(conn: Connection, jobs: Sequence[UUID], token: int) -> dict[UUID, int]:
    query = "SELECT job_id, pid FROM recovery.starts WHERE job_id = ANY (%s) AND token = %s"
    return dict(conn.execute(query, [list(jobs), token]).fetchall())


def _wait_until(state: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not state():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {_TIMEOUT_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)


def as_section(
    killed: Sequence[float], stopped: Sequence[float], peers: Sequence[PeerRecovery]
) -> Section:
    defaults = WorkerSettings()
    rows = []
    facts: dict[str, Any] = {"settings": {"lease_seconds": defaults.lease_seconds}}
    for key, name, seconds in (("sigkill", "SIGKILL", killed), ("sigstop", "SIGSTOP", stopped)):
        p50, p95, longest = quantile(seconds, 0.5), quantile(seconds, 0.95), max(seconds)
        facts[key] = {"n": len(seconds), "p50": p50, "p95": p95, "max": longest}
        facts[key]["seconds"] = [round(value, 4) for value in seconds]
        figures = [f"{value:.3f}" for value in (p50, p95, longest)]
        rows.append(["**Faultline**", name, str(len(seconds)), *figures])
    rows += [_row(recovery) for recovery in peers]
    facts["peers"] = {recovery.peer.name: recovery.facts() for recovery in peers}
    lease = f"{defaults.lease_seconds:g}"
    about = (
        "From the signal until the job that the worker was running is running in another worker, default"
        f" settings. A killed process is noticed by its closed connections; a stopped one when its lease of"
        f" {lease} s, renewed every {defaults.heartbeat_seconds:g} s, has expired."
    )
    what = "SIGKILLed worker → its job running elsewhere"
    p50_goal = Goal(f"{what}, p50", "default settings", 0.3, at_least=False, unit="s")
    p95_goal = Goal(f"{what}, p95", "default settings", 0.6, at_least=False, unit="s")
    return Section(
        title="Recovery",
        json=facts,
        markdown="\n\n".join([about, *_about(peers), table(_HEAD, rows)]),
        figures={"recovery": _draw(killed, stopped)},
        verdicts=[
            p50_goal.judge(facts["sigkill"]["p50"], detail=f"n = {len(killed)}"),
            p95_goal.judge(facts["sigkill"]["p95"], detail=f"n = {len(killed)}"),
        ],
    )


def _row(recovery: PeerRecovery) -> list[str]:
    """Return a row without p95, since there are only a few kills."""
    if not recovery.seconds:
        return [recovery.peer.title, "SIGKILL", "0", f"failed: {recovery.problem}", "–", "–"]
    p50, longest = (
        f"not within {recovery.bound_seconds:g} s" if value is None else f"{value:.1f}"
        for value in (recovery.median, recovery.longest)
    )
    return [recovery.peer.title, "SIGKILL", str(len(recovery.seconds)), p50, "–", longest]


def _about(peers: Sequence[PeerRecovery]) -> list[str]:
    if not peers:
        return []
    settings = "; ".join(f"{recovery.peer.title}: {recovery.peer.recovery}" for recovery in peers)
    return [
        "Peers run at their default settings: one worker runs a job, a second one is idle, and the first is"
        f" killed. Each kill is measured for at most {BOUND_SECONDS:g} s; there are few of them."
        f" How each peer recovers a job: {settings}."
    ]


def _draw(killed: Sequence[float], stopped: Sequence[float]) -> Figure:
    """Draw every measured time as a dot."""
    figure, axes = new_figure(7.6, 2.6)
    rows = [("SIGKILL", killed), ("SIGSTOP", stopped)]
    for row, (_, seconds) in enumerate(rows):
        lanes = [row + 0.3 * ((number * 0.618) % 1 - 0.5) for number in range(len(seconds))]
        axes.scatter(sorted(seconds), lanes, s=14, color="#3b6ea8", alpha=0.5, linewidths=0)
    labels = [f"{name}, n = {len(times)}\np50 {quantile(times, 0.5):.2f} s" for name, times in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_ylim(1.5, -0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    axes.set_xlabel("seconds until the job runs elsewhere, logarithmic", color=INK, fontsize=8)
    axes.set_title("Recovery from a killed and from a stopped worker", loc="left", color=INK)
    figure.subplots_adjust(left=0.18, right=0.97, top=0.86, bottom=0.22)
    return figure
