"""A worker freezes during COPY, with its job locked.

PostgreSQL counts such a session as active, so the idle limit does not end it. First, as the
control, the function that ends such sessions does nothing: the job stays with the frozen worker,
while all others run. Then the function is restored: the reconciler must end the session, and the
job must be taken over.
"""

from __future__ import annotations

from faultline.config import HOLDER_GRACE_SECONDS
from faultline_drills.context import DrillContext
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_copy

_DEFINITION = (
    "SELECT pg_get_functiondef('faultline.end_lapsed_holders(interval, integer)'::regprocedure)"
)
_LAPSED = (
    "SELECT FROM faultline.jobs WHERE id = %s"
    " AND lease_expires_at < clock_timestamp() - make_interval(secs => %s)"
)


@scenario(shows=("stops", "sessions_ended", "takeovers", "commits"))
def worker_frozen_during_copy(drill: DrillContext) -> None:
    [(definition,)] = drill.query(_DEFINITION)
    head, _, _ = definition.partition("AS $function$")
    drill.conn.execute(f"{head}AS $function$ BEGIN END $function$".encode())

    frozen_job = drill.submit(pay_by_copy, number=0, parts=2, plan={"1": "stop@half"})
    late = drill.worker("--no-self-fencing", "--concurrency", "1", name="late")
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    for number in range(1, drill.settings.jobs):
        drill.submit(pay, number=number)
    others = [drill.worker() for _ in range(drill.settings.workers)]
    drill.wait_until(lambda: drill.unfinished() == 1, "the end of all jobs but one")
    drill.wait_for_row(_LAPSED, [frozen_job, 2 * HOLDER_GRACE_SECONDS], "the end of its lease")
    tokens = drill.query(
        "SELECT state, fencing_token FROM faultline.jobs WHERE id = %s", [frozen_job]
    )
    drill.expect(tokens == [("running", 1)], f"without the function the job became {tokens}")

    drill.conn.execute(definition.encode())
    drill.expect(
        drill.wait_for_state(frozen_job, "succeeded", "failed") == "succeeded",
        "the job of the frozen worker did not succeed",
    )
    drill.wait_until(
        lambda: any(worker.events_named("session_ended") for worker in others),
        "the event of its end",
    )
    ended = sum(len(worker.events_named("session_ended")) for worker in others)
    drill.expect(ended == 1, f"{ended} sessions were ended")
    drill.measured["sessions_ended"] = ended
    late.resume()
    drill.wait_until(lambda: bool(late.events_named("worker_exit")), "the end of its attempt")
