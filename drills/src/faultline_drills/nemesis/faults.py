"""What a nemesis can do. Each blow is recorded when it has struck, and healed before it returns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import LiteralString

import psycopg

from faultline.errors import DatabaseUnavailable
from faultline.postgres.sessions import connect
from faultline_drills.arena import DrillNotRun
from faultline_drills.nemesis.battlefield import Battlefield
from faultline_drills.nemesis.messages import is_batch_commit, is_commit
from faultline_drills.proxy import Action, Direction, Match, Message

_HOUR_SECONDS = 3600
_TRAP_SECONDS = 3.0
_SESSIONS: LiteralString = """
    SELECT pid, application_name FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
      AND starts_with(application_name, 'faultline ')
      AND application_name NOT IN ('faultline drill', 'faultline nemesis')
    ORDER BY pid
"""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str  # one word for one of them; its plural is what the report counts
    weight: int  # how often, beside the others
    strike: Callable[[Battlefield], None]
    harms_server: bool = False  # only for a server that the run has for itself


def _kill(field: Battlefield) -> None:
    if living := field.roster.living:
        victim = field.dice.choice(living)
        victim.kill()
        field.arena.inject("kill", victim.name)


def _stop(field: Battlefield) -> None:
    if living := field.roster.living_workers:
        victim = field.dice.choice(living)
        victim.stop()
        field.arena.inject("stop", victim.name)
        try:
            field.hold(1.2, 2.5)
        finally:
            victim.resume()


def _partition(field: Battlefield) -> None:
    network, direction = field.network, field.dice.choice(list(Direction))
    network.blackhole(direction)
    field.arena.inject("partition", network.name, lost=direction)
    try:
        field.hold(0.5, 2.5)
    finally:
        network.flow()


def _half_open(field: Battlefield) -> None:
    network = field.network
    routes = network.routes
    for route in routes:
        route.cut_server()
    field.arena.inject("half_open", network.name, connections=len(routes))
    try:
        field.hold(0.5, 2.5)
    finally:
        for route in routes:
            route.cut_client()


def _reset(field: Battlefield) -> None:
    network = field.network
    if count := network.reset_all():
        field.arena.inject("reset", network.name, connections=count)


def _lost_acknowledgement(field: Battlefield) -> None:
    proxy = field.network.busiest

    def cut(message: Message) -> None:
        with contextlib.suppress(ValueError):  # it has ended by itself
            proxy.route_of(connection=message.connection).reset()

    def is_any_commit(message: Message) -> bool:
        return is_commit(message) or is_batch_commit(message)

    wanted = is_commit if field.dice.random() < 0.7 else is_any_commit
    trap = proxy.on(Match(where=wanted), Action.SWALLOW_REPLY, cut)
    if message := trap.wait(_TRAP_SECONDS):
        field.arena.inject("lost_acknowledgement", message.application or "handler")
    proxy.remove(trap)


def _backend_kill(field: Battlefield) -> None:
    with connect(field.arena.url, application_name="faultline nemesis") as conn:
        sessions = conn.execute(_SESSIONS).fetchall()
        for pid, name in field.dice.sample(sessions, min(3, len(sessions))):
            if conn.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone() == (True,):
                field.arena.inject("backend_kill", name)


def _exhaustion(field: Battlefield) -> None:
    with ExitStack() as hoard:
        for network in field.networks:  # or somebody would be back before the last place is taken
            network.refuse_connections()
            network.reset_all()
        try:
            taken = _take_all(field, hoard)
        finally:
            for network in field.networks:
                network.flow()
        field.arena.inject("exhaustion", "postgres", taken=taken)
        field.hold(0.5, 1.5)


def _take_all(field: Battlefield, hoard: ExitStack) -> int:
    for taken in range(field.max_connections):
        try:
            hoard.enter_context(psycopg.connect(field.arena.url, application_name="hoard"))
        except psycopg.OperationalError:
            return taken
    return field.max_connections


def _restart(field: Battlefield) -> None:
    server = field.server
    how = field.dice.choice(["fast", "immediate", "SIGKILL"])
    match how:
        case "fast":
            server.shut_down(mode="fast")
        case "immediate":
            server.shut_down(mode="immediate")
        case _:
            server.kill()
    field.arena.inject("restart", "postgres", how=how)
    try:
        field.hold(0, 1)
    finally:
        server.start()


def _failover(field: Battlefield) -> None:
    """The primary's machine is gone, and the standby, which has all that was acknowledged, takes its place;
    then another machine becomes its standby, so that it can happen again."""
    cluster = field.cluster
    assert cluster is not None  # noqa: S101 - see available_faults
    lost, (standby,) = cluster.primary, cluster.standbys
    # A primary that has crashed shows what it alone has, when it is back: no HA manager would take a
    # standby for a good one before that has been shipped as well.
    cluster.wait_until_shipped(standby)
    lost.power_off()
    field.hold(0, 1)
    try:
        standby.promote()
        cluster.primary = standby
        field.arena.inject("failover", standby.name, timeline=standby.timeline)
        if field.pooler is not None:
            field.pooler.aim(standby.url)
        cluster.acknowledge_after([cluster.replace(lost)], level="on")
    except (psycopg.OperationalError, DatabaseUnavailable) as error:  # half a blow is none
        raise DrillNotRun(f"{standby.name} did not take the place of {lost.name}") from error


def _clock_jump(field: Battlefield) -> None:
    """An hour ahead for good, or an hour back for a while. What is due, and what is retried later, is
    due by the database's clock: set back for good, it would hold up a queue for an hour."""
    assert field.clock is not None  # noqa: S101 - see available_faults
    ahead = field.dice.random() < 0.5
    now = field.clock.shift_seconds
    field.clock.move(now + (_HOUR_SECONDS if ahead else -_HOUR_SECONDS))
    field.arena.inject("clock_jump", "postgres", hours="+1" if ahead else "-1")
    if not ahead:
        try:
            field.hold(0.5, 2)
        finally:
            field.clock.move(now)


def _pooler_kill(field: Battlefield) -> None:
    assert field.pooler is not None  # noqa: S101 - see available_faults
    field.pooler.kill()
    field.arena.inject("pooler_kill", "pgbouncer")
    try:
        field.hold(0, 1)
    finally:
        field.pooler.start()


FAULTS: dict[str, Fault] = {
    fault.kind: fault
    for fault in (
        Fault("kill", 6, _kill),
        Fault("stop", 4, _stop),
        Fault("partition", 4, _partition),
        Fault("half_open", 2, _half_open),
        Fault("reset", 3, _reset),
        Fault("lost_acknowledgement", 4, _lost_acknowledgement),
        Fault("backend_kill", 3, _backend_kill),
        Fault("pooler_kill", 2, _pooler_kill),
        Fault("exhaustion", 1, _exhaustion, harms_server=True),
        Fault("restart", 1, _restart, harms_server=True),
        Fault("failover", 1, _failover, harms_server=True),
        Fault("clock_jump", 1, _clock_jump, harms_server=True),
    )
}


def available_faults(
    *, owns_server: bool, moves_clock: bool, has_pooler: bool = False, has_standby: bool = False
) -> list[Fault]:
    """What may be done here: somebody's server is left alone, a clock must be movable, and a pooler and
    a standby there."""
    impossible = set() if moves_clock else {"clock_jump"}
    impossible |= set() if has_pooler else {"pooler_kill"}
    impossible |= set() if has_standby else {"failover"}
    return [
        fault
        for fault in FAULTS.values()
        if (owns_server or not fault.harms_server) and fault.kind not in impossible
    ]
