"""The chain of docs/coming-from/celery.md: one commit for two jobs."""

from __future__ import annotations

import shlex

from tests.coming_from.conftest import Open

RUN = """
import psycopg
from faultline.testing import run_until_idle
import chained, shop

class Broken(Exception):
    pass

@shop.app.task(name="broken", max_attempts=1)
def broken(job):
    with job.transaction() as tx:
        chained.thank.options(conn=tx).enqueue(invoice=8)
        raise Broken

chained.charge_and_thank.enqueue(invoice=7)
broken.enqueue()
for attempted in run_until_idle(shop.app, raise_errors=False):
    print(attempted.task, attempted.outcome, attempted.result)
"""


def test_the_next_job_exists_if_the_first_has_committed(open_page: Open) -> None:
    page = open_page("celery.md")
    assert page.run_other(f"python -c {shlex.quote(RUN)}").splitlines() == [
        "shop.charge_and_thank succeeded None",
        "broken failed None",
        "shop.thank succeeded thanks for invoice 7",
    ]
    assert page.paid() == {7: "faultline"}
