"""The clock says exactly the moment at which the lease ends: who has the job?

At that microsecond the lease is over: the holder is refused, and the reconciler may take the job.
Were it over for one and not for the other, there would be a moment with two owners, or with none. No
real clock can be read at a given moment, so the protocol is installed once more with a clock that
stands where the drill sets it, and is otherwise word for word the same.
"""

from __future__ import annotations

from importlib import resources

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.arena import Arena
from faultline_drills.scenario import scenario
from faultline_drills.subjects import Subject, weaken
from faultline_drills.workload import note

_CLOCK = """
    CREATE FUNCTION drill.clock() RETURNS timestamptz LANGUAGE sql STABLE AS $$
        SELECT coalesce(nullif(current_setting('drill.clock', true), '')::timestamptz,
                        pg_catalog.clock_timestamp()) $$
"""


@scenario(shows=("edges", "takeovers", "commits"), breaks_naive=True)
def edge_of_the_lease(arena: Arena) -> None:
    arena.submit(note, number=1)
    try:
        _install_clock(arena)
        claim = _claimed(arena)
        edge = arena.query(
            "SELECT lease_expires_at::text FROM faultline.jobs WHERE id = %s", [claim.job_id]
        )[0][0]
        arena.inject("edge", str(edge))
        _set_clock(arena, edge)
        _meet_the_fence(arena, claim)
        reaped = run(arena.conn, protocol.reconcile(max_jobs=10))
        arena.expect(
            len(reaped) == 1, "at the end of the lease a reconciler could not take the job"
        )
    finally:
        _remove_clock(arena)


def _meet_the_fence(arena: Arena, claim: Claim) -> None:
    for what, statement in {
        "assert_fence": protocol.assert_fence(claim),
        "commit": protocol.commit(claim),
    }.items():
        try:
            run(arena.conn, statement)
            arena.expect(False, f"at the end of the lease, {what} was not refused")
        except StaleLease as stale:
            arena.expect(stale.reason == "lease_expired", f"{what} was refused as {stale.reason}")
            arena.injected["refusal"] += 1
    (verdict,) = run(arena.conn, protocol.commit_many([claim], [None]))
    arena.expect(verdict.reason == "lease_expired", f"commit_many said {verdict.outcome}")


def _claimed(arena: Arena) -> Claim:
    _set_clock(arena, str(arena.query("SELECT clock_timestamp()::text")[0][0]))
    take = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=10)
    (claim,) = run(arena.conn, take)
    return claim


def _set_clock(arena: Arena, moment: str) -> None:
    arena.conn.execute("SELECT set_config('drill.clock', %s, false)", [moment])


def _install_clock(arena: Arena) -> None:
    text = _protocol()
    for clock in ("clock_timestamp()", "statement_timestamp()"):
        text = text.replace(clock, "drill.clock()")
    arena.conn.execute(_CLOCK)
    _install(arena, text)


def _remove_clock(arena: Arena) -> None:
    _set_clock(arena, "")
    _install(arena, _protocol())


def _install(arena: Arena, protocol: str) -> None:
    arena.conn.execute(protocol.encode())
    if arena.settings.subject is Subject.NAIVE:
        weaken(arena.url)


def _protocol() -> str:
    return resources.files("faultline").joinpath("sql", "protocol.sql").read_text()
