"""After the database's clock was set back, the leader makes stranded jobs due."""

from __future__ import annotations

import pytest

from faultline import Faultline, Job, JobState
from faultline.reconciler import Reconciler
from faultline.reconciler.clock_setback import ClockWatch
from tests.running import Connection, EventTap, ended, working


def test_a_job_enqueued_before_the_clock_was_set_back_runs_at_once(
    app: Faultline, conn: Connection, events: EventTap, database_url: str
) -> None:
    @app.task()
    async def noop(job: Job) -> None: ...

    job_id = noop.enqueue().job_id
    conn.execute(
        "UPDATE faultline.jobs SET created_at = created_at + interval '1 day',"
        " next_run_at = next_run_at + interval '1 day'"
    )
    with working(app, companions=[Reconciler(database_url).run]):
        assert ended(app, job_id).state is JobState.SUCCEEDED
    assert [line["jobs"] for line in events.of("jobs_rescheduled")] == [1]
    assert "clock was set back by 86" in events.of("degraded")[-1]["reason"]


@pytest.mark.parametrize(
    ("shown", "sent_at", "answered_at", "seconds"),
    [
        (1_010.0, 20.0, 20.0, 0.0),  # it goes as the steady one does
        (1_500.0, 20.0, 20.0, 0.0),  # it was set forward
        (1_005.0, 12.0, 20.0, 0.0),  # an answer that took eight seconds proves nothing
        (910.0, 20.0, 20.0, 100.0),
        (910.0, 12.0, 20.0, 92.0),  # so much at least
    ],
)
def test_a_clock_that_was_set_back_is_told_from_a_slow_answer(
    shown: float, sent_at: float, answered_at: float, seconds: float
) -> None:
    watch = ClockWatch()
    assert watch.set_back_seconds(1_000.0, sent_at=10.0, answered_at=10.0) == 0
    seen = watch.set_back_seconds(shown, sent_at=sent_at, answered_at=answered_at)
    assert seen == pytest.approx(seconds)
