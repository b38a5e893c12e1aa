"""The faults of a nemesis; each is recorded, and undone where it can be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import LiteralString

import psycopg

from faultline.errors import DatabaseUnavailable
from faultline.postgres.sessions import connect
from faultline_drills.context import DrillNotRun
from faultline_drills.nemesis.targets import FaultTargets
from faultline_drills.proxy import Action, Direction, Match, Message
from faultline_drills.proxy.matchers import is_batch_commit, is_commit

_HOUR_SECONDS = 3600
_COMMIT_SECONDS = 3.0
_SESSIONS: LiteralString = """
    SELECT pid, application_name FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
      AND starts_with(application_name, 'faultline ')
      AND application_name NOT IN ('faultline drill', 'faultline nemesis')
    ORDER BY pid
"""


@dataclass(frozen=True, slots=True)
class NemesisFault:
    kind: str  # singular; the report counts it under its plural
    weight: int  # its relative frequency
    inject: Callable[[FaultTargets], None]
    harms_server: bool = False  # only for a server that the run started itself


def _kill(targets: FaultTargets) -> None:
    if running := targets.processes.running:
        victim = targets.rng.choice(running)
        victim.kill()
        targets.drill.inject("kill", victim.name)


def _stop(targets: FaultTargets) -> None:
    if running := targets.processes.running_workers:
        victim = targets.rng.choice(running)
        victim.stop()
        targets.drill.inject("stop", victim.name)
        try:
            targets.hold(1.2, 2.5)
        finally:
            victim.resume()


def _partition(targets: FaultTargets) -> None:
    network, direction = targets.any_network(), targets.rng.choice(list(Direction))
    network.blackhole(direction)
    targets.drill.inject("partition", network.name, lost=direction)
    try:
        targets.hold(0.5, 2.5)
    finally:
        network.clear_faults()


def _half_open(targets: FaultTargets) -> None:
    network = targets.any_network()
    connections = network.connections
    for connection in connections:
        connection.cut_server()
    targets.drill.inject("half_open", network.name, connections=len(connections))
    try:
        targets.hold(0.5, 2.5)
    finally:
        for connection in connections:
            connection.cut_client()


def _reset(targets: FaultTargets) -> None:
    network = targets.any_network()
    if count := network.reset_all():
        targets.drill.inject("reset", network.name, connections=count)


def _lost_acknowledgement(targets: FaultTargets) -> None:
    proxy = targets.any_network().busiest

    def cut(message: Message) -> None:
        with contextlib.suppress(ValueError):  # the connection has already ended
            proxy.connection_of(connection=message.connection).reset()

    def is_any_commit(message: Message) -> bool:
        return is_commit(message) or is_batch_commit(message)

    wanted = is_commit if targets.rng.random() < 0.7 else is_any_commit
    interception = proxy.on(Match(where=wanted), Action.DROP_REPLY, cut)
    if message := interception.wait(_COMMIT_SECONDS):
        targets.drill.inject("lost_acknowledgement", message.application or "handler")
    proxy.remove(interception)


def _backend_kill(targets: FaultTargets) -> None:
    with connect(targets.drill.url, application_name="faultline nemesis") as conn:
        sessions = conn.execute(_SESSIONS).fetchall()
        for pid, name in targets.rng.sample(sessions, min(3, len(sessions))):
            if conn.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone() == (True,):
                targets.drill.inject("backend_kill", name)


def _exhaustion(targets: FaultTargets) -> None:
    with ExitStack() as sessions:
        for (
            network
        ) in targets.networks:  # so that no worker reconnects before the last slot is taken
            network.refuse_connections()
            network.reset_all()
        try:
            taken = _take_all(targets, sessions)
        finally:
            for network in targets.networks:
                network.clear_faults()
        targets.drill.inject("exhaustion", "postgres", taken=taken)
        targets.hold(0.5, 1.5)


def _take_all(targets: FaultTargets, sessions: ExitStack) -> int:
    for taken in range(targets.max_connections):
        try:
            sessions.enter_context(
                psycopg.connect(targets.drill.url, application_name="exhaustion")
            )
        except psycopg.OperationalError:
            return taken
    return targets.max_connections


def _restart(targets: FaultTargets) -> None:
    server = targets.server
    how = targets.rng.choice(["fast", "immediate", "SIGKILL"])
    match how:
        case "fast":
            server.shut_down(mode="fast")
        case "immediate":
            server.shut_down(mode="immediate")
        case _:
            server.kill()
    targets.drill.inject("restart", "postgres", how=how)
    try:
        targets.hold(0, 1)
    finally:
        server.start()


def _failover(targets: FaultTargets) -> None:
    """Power off the primary, promote its synchronous standby, start another one."""
    cluster = targets.cluster
    assert cluster is not None  # noqa: S101 - see available_faults
    lost, (standby,) = cluster.primary, cluster.standbys
    # After a crash recovery the primary may show commits that the standby lacks. An HA manager would
    # not count that standby as synchronous before it has replayed them.
    cluster.wait_until_shipped(standby)
    lost.power_off()
    targets.hold(0, 1)
    try:
        standby.promote()
        cluster.primary = standby
        targets.drill.inject("failover", standby.name, timeline=standby.timeline)
        if targets.pooler is not None:
            targets.pooler.redirect(standby.url)
        cluster.acknowledge_after([cluster.replace(lost)], level="on")
    except (
        psycopg.OperationalError,
        DatabaseUnavailable,
    ) as error:  # a half-done failover is no fault
        raise DrillNotRun(f"{standby.name} was not promoted in place of {lost.name}") from error


def _clock_jump(targets: FaultTargets) -> None:
    """Set the database's clock an hour ahead for good, or an hour back for a while.

    Jobs are due by that clock: set back for good, it would hold up the queue for an hour.
    """
    assert targets.clock is not None  # noqa: S101 - see available_faults
    ahead = targets.rng.random() < 0.5
    now = targets.clock.shift_seconds
    targets.clock.move(now + (_HOUR_SECONDS if ahead else -_HOUR_SECONDS))
    targets.drill.inject("clock_jump", "postgres", hours="+1" if ahead else "-1")
    if not ahead:
        try:
            targets.hold(0.5, 2)
        finally:
            targets.clock.move(now)


def _pooler_kill(targets: FaultTargets) -> None:
    assert targets.pooler is not None  # noqa: S101 - see available_faults
    targets.pooler.kill()
    targets.drill.inject("pooler_kill", "pgbouncer")
    try:
        targets.hold(0, 1)
    finally:
        targets.pooler.start()


FAULTS: dict[str, NemesisFault] = {
    fault.kind: fault
    for fault in (
        NemesisFault("kill", 6, _kill),
        NemesisFault("stop", 4, _stop),
        NemesisFault("partition", 4, _partition),
        NemesisFault("half_open", 2, _half_open),
        NemesisFault("reset", 3, _reset),
        NemesisFault("lost_acknowledgement", 4, _lost_acknowledgement),
        NemesisFault("backend_kill", 3, _backend_kill),
        NemesisFault("pooler_kill", 2, _pooler_kill),
        NemesisFault("exhaustion", 1, _exhaustion, harms_server=True),
        NemesisFault("restart", 1, _restart, harms_server=True),
        NemesisFault("failover", 1, _failover, harms_server=True),
        NemesisFault("clock_jump", 1, _clock_jump, harms_server=True),
    )
}


def available_faults(
    *, owns_server: bool, moves_clock: bool, has_pooler: bool = False, has_standby: bool = False
) -> list[NemesisFault]:
    """The faults that can be injected here; an existing server is not harmed."""
    impossible = set() if moves_clock else {"clock_jump"}
    impossible |= set() if has_pooler else {"pooler_kill"}
    impossible |= set() if has_standby else {"failover"}
    return [
        fault
        for fault in FAULTS.values()
        if (owns_server or not fault.harms_server) and fault.kind not in impossible
    ]
