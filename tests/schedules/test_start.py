"""Programs without schedules start without the cron library."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from faultline import Faultline, Job
from faultline.reconciler import Reconciler
from faultline.workers import Worker
import faultline.cli.worker, faultline.cli.schedules, faultline.api
app = Faultline("postgresql://nowhere")
@app.task(name="t")
def task(job: Job) -> None: ...
assert "cronsim" not in sys.modules
app.schedule(task.job(), every=60)
assert "cronsim" not in sys.modules
app.schedule("0 6 * * *", name="daily")(task)
assert "cronsim" in sys.modules
"""


def test_the_cron_library_is_imported_by_the_first_cron_expression() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=60)
