"""A commit and a reconciler meet at the exact microsecond of lease expiry.

At that microsecond the lease is over: the holder must be refused, and the reconciler may requeue
the job. Otherwise there would be a moment with two owners, or with none. No real clock can be read
at a given moment, so the protocol is installed again with a clock that the drill sets, and is
otherwise the same text.
"""

from __future__ import annotations

from importlib import resources

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.subjects import Subject, weaken
from faultline_drills.workload.tasks import note

_CLOCK = """
    CREATE FUNCTION drill.clock() RETURNS timestamptz LANGUAGE sql STABLE AS $$
        SELECT coalesce(nullif(current_setting('drill.clock', true), '')::timestamptz,
                        pg_catalog.clock_timestamp()) $$
"""


@scenario(shows=("lease_ends", "takeovers", "commits"), breaks_naive=True)
def commit_at_lease_expiry(drill: DrillContext) -> None:
    drill.submit(note, number=1)
    try:
        _install_clock(drill)
        claim = _claimed(drill)
        expiry = drill.query(
            "SELECT lease_expires_at::text FROM faultline.jobs WHERE id = %s", [claim.job_id]
        )[0][0]
        drill.inject("lease_end", str(expiry))
        _set_clock(drill, expiry)
        _expect_refusals(drill, claim)
        requeued = run(drill.conn, protocol.reconcile(max_jobs=10))
        drill.expect(
            len(requeued) == 1, "a reconciler did not requeue the job at its lease's expiry"
        )
    finally:
        _remove_clock(drill)


def _expect_refusals(drill: DrillContext, claim: Claim) -> None:
    for what, statement in {
        "assert_fence": protocol.assert_fence(claim),
        "commit": protocol.commit(claim),
    }.items():
        try:
            run(drill.conn, statement)
            drill.expect(False, f"{what} was not refused at the lease's expiry")
        except StaleLease as stale:
            drill.expect(stale.reason == "lease_expired", f"{what} was refused as {stale.reason}")
            drill.injected["refusal"] += 1
    (verdict,) = run(drill.conn, protocol.commit_many([claim], [None]))
    drill.expect(verdict.reason == "lease_expired", f"commit_many returned {verdict.outcome}")


def _claimed(drill: DrillContext) -> Claim:
    _set_clock(drill, str(drill.query("SELECT clock_timestamp()::text")[0][0]))
    take = protocol.claim("clerk", ["default"], batch_size=1, lease_seconds=10)
    (claim,) = run(drill.conn, take)
    return claim


def _set_clock(drill: DrillContext, moment: str) -> None:
    drill.conn.execute("SELECT set_config('drill.clock', %s, false)", [moment])


def _install_clock(drill: DrillContext) -> None:
    text = _protocol()
    for clock in ("clock_timestamp()", "statement_timestamp()"):
        text = text.replace(clock, "drill.clock()")
    drill.conn.execute(_CLOCK)
    _install(drill, text)


def _remove_clock(drill: DrillContext) -> None:
    _set_clock(drill, "")
    _install(drill, _protocol())


def _install(drill: DrillContext, protocol: str) -> None:
    drill.conn.execute(protocol.encode())
    if drill.settings.subject is Subject.NAIVE:
        weaken(drill.url)


def _protocol() -> str:
    """The functions that decide by the clock."""
    files = resources.files("faultline").joinpath("sql")
    return "\n".join(files.joinpath(n).read_text() for n in ("protocol.sql", "recovery.sql"))
