"""The attempt of a schedule's job names its planned time."""

from __future__ import annotations

from faultline import Faultline, Job
from tests.running import Connection, work_off
from tests.schedules.test_declaring import declare
from tests.tracing.recorded import Recorded, attributes


def test_an_attempt_of_a_scheduled_job_has_its_planned_time(
    app: Faultline, conn: Connection, recorded: Recorded
) -> None:
    @app.schedule(every=3600, name="hourly")
    @app.task(name="report")
    async def report(job: Job) -> None: ...

    declare(conn, app)
    work_off(app, app.run_schedule("hourly"))
    work_off(app, report.enqueue().job_id)

    planned, other = (attributes(span) for span in recorded.named("execute default"))
    [(moment,)] = conn.execute(
        "SELECT scheduled_for FROM faultline.jobs WHERE scheduled_for IS NOT NULL"
    ).fetchall()
    assert planned["faultline.scheduled_for"] == moment.isoformat()
    assert "faultline.scheduled_for" not in other
