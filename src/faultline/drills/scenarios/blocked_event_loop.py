"""A handler blocks its worker's event loop for longer than a lease, and loses nothing.

A forgotten `time.sleep`, a slow library, a large computation: everything that shares the loop stands
still. Heartbeats have a thread and a session of their own, so the leases of all its jobs go on being
renewed, and nobody takes over what is merely slow.
"""

from __future__ import annotations

from faultline.drills.arena import Arena
from faultline.drills.history import Phase, Verb
from faultline.drills.scenario import scenario
from faultline.drills.workload import BLOCK_VARIABLE, pay

# Of the drill's own leases: a heartbeat that a busy machine holds up for a second has not stood still.
_LEASES = 3
_BLOCKED_LEASES = 1.2


@scenario(shows=("blocks", "commits"))
def blocked_event_loop(arena: Arena) -> None:
    lease, jobs = _LEASES * arena.settings.lease_seconds, arena.settings.jobs
    blocking = {str(arena.submit(pay, number=0, plan={"1": "block@start"}))}
    blocking |= {
        str(arena.submit(pay, number=number, plan={"1": "block@start"}))
        for number in range(1, arena.settings.workers)
    }
    for number in range(len(blocking), jobs):
        arena.submit(pay, number=number)
    environment = {BLOCK_VARIABLE: str(_BLOCKED_LEASES * lease)}
    for _ in range(arena.settings.workers):
        arena.worker("--lease-seconds", str(lease), environment=environment)
    arena.wait_until(
        lambda: arena.count("SELECT count(*) FROM faultline.ledger") >= jobs, "the end of all jobs"
    )
    arena.dismiss(arena.workers)  # everything that they said has been heard
    for attempt in arena.history.operations(Verb.ATTEMPT):
        if attempt.job in blocking and attempt.outcome is Phase.OK and attempt.ended is not None:
            seconds = attempt.ended - attempt.began
            if seconds > lease:
                arena.inject("block", attempt.process, seconds=round(seconds, 2))
    again = arena.count("SELECT count(*) FROM faultline.jobs WHERE fencing_token > 1")
    arena.expect(again == 0, f"{again} jobs were taken from a worker that was merely blocked")
