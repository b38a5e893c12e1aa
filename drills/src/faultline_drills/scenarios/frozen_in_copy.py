"""A worker freezes in the middle of COPY, with its job locked, and the reconciler ends its session.

For PostgreSQL such a session is active, so its limit on idling does not end it. First, as the control, the
function that ends such sessions does nothing: the job stays with the frozen worker, while all others
flow. Then the function is put back, and the job is taken over. When the worker wakes up its session is gone.
"""

from __future__ import annotations

from faultline.config import HOLDER_GRACE_SECONDS
from faultline_drills.arena import Arena
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay, pay_by_copy

_DEFINITION = (
    "SELECT pg_get_functiondef('faultline.end_lapsed_holders(interval, integer)'::regprocedure)"
)
_LAPSED = (
    "SELECT FROM faultline.jobs WHERE id = %s"
    " AND lease_expires_at < clock_timestamp() - make_interval(secs => %s)"
)


@scenario(shows=("stops", "sessions_ended", "takeovers", "commits"))
def frozen_in_copy(arena: Arena) -> None:
    [(definition,)] = arena.query(_DEFINITION)
    head, _, _ = definition.partition("AS $function$")
    arena.conn.execute(f"{head}AS $function$ BEGIN END $function$".encode())

    frozen_job = arena.submit(pay_by_copy, number=0, parts=2, plan={"1": "stop@half"})
    late = arena.worker("--no-self-fencing", "--concurrency", "1", name="late")
    arena.wait_until(lambda: late.is_stopped, "the stall", by=late)
    arena.inject("stop", late.name)
    for number in range(1, arena.settings.jobs):
        arena.submit(pay, number=number)
    others = [arena.worker() for _ in range(arena.settings.workers)]
    arena.wait_until(lambda: arena.unfinished() == 1, "the end of all jobs but one")
    arena.wait_for_row(_LAPSED, [frozen_job, 2 * HOLDER_GRACE_SECONDS], "its lease is long over")
    tokens = arena.query(
        "SELECT state, fencing_token FROM faultline.jobs WHERE id = %s", [frozen_job]
    )
    arena.expect(tokens == [("running", 1)], f"without the function the job is {tokens}")

    arena.conn.execute(definition.encode())
    arena.expect(
        arena.wait_for_state(frozen_job, "succeeded", "failed") == "succeeded",
        "the job of the worker that froze did not succeed",
    )
    arena.wait_until(
        lambda: any(worker.heard("session_ended") for worker in others), "the report of its end"
    )
    ended = sum(len(worker.heard("session_ended")) for worker in others)
    arena.expect(ended == 1, f"{ended} sessions were ended")
    arena.measured["sessions_ended"] = ended
    late.resume()
    arena.wait_until(lambda: bool(late.heard("worker_exit")), "the late worker's end")
