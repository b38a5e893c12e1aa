"""Faultline as users run it: a module with tasks, `enqueue`, `faultline worker`."""

import os
import sys
from pathlib import Path
from typing import Any

import faultline
from faultline.postgres.migrate import migrate
from faultline.retry_policy import RetryPolicy

try:
    from faultline.statements.survey import survey
except ImportError:  # an older Faultline has it there
    from faultline.statements.workers import survey

sys.path.append(str(Path(__file__).parents[1]))
import roles

app = faultline.Faultline(os.environ.get("BENCH_URL"))
_AT_ONCE = RetryPolicy(base_seconds=0.0, cap_seconds=0.0)


_IN_BATCHES = roles.WORKLOAD in ("drain_batch", "write_batch")


async def noop(job: faultline.Job, n: int, filler: str) -> None:
    roles.note_start({"n": n})


@app.task(name="stamp")
async def stamp(job: faultline.Job, n: int, filler: str, sent_ns: int) -> None:
    roles.note_start({"n": n, "sent_ns": sent_ns})


async def write(job: faultline.Job, n: int, filler: str) -> None:
    roles.note_start({"n": n})
    async with job.transaction() as tx:  # the row, the ledger entry and "succeeded" together
        await tx.execute("INSERT INTO bench_effects (n) VALUES (%s)", [n])


async def write_at_once(job: faultline.Job, n: int, filler: str) -> None:
    roles.note_start({"n": n})
    await job.commit_with("INSERT INTO bench_effects (n) VALUES (%s)", [n])


if _IN_BATCHES:
    Batch = faultline.Batch[dict[str, Any]]  # an older Faultline has none

    @app.batch_task(name="noop")
    async def noop_batch(batch: Batch) -> None:
        for job in batch:
            roles.note_start(job.args)

    @app.batch_task(name="write")
    async def write_batch(batch: Batch) -> None:
        async with batch.transaction() as tx:  # one row and one ledger entry for each job
            rows = []
            for job in batch:
                roles.note_start(job.args)
                rows.append((job.args["n"],))
            await tx.cursor().executemany("INSERT INTO bench_effects (n) VALUES (%s)", rows)

else:
    app.task(name="noop")(noop)
    app.task(name="write")(write_at_once if roles.WORKLOAD == "write_message" else write)


@app.task(name="flaky", retry=_AT_ONCE)
async def flaky(job: faultline.Job, n: int, filler: str) -> None:
    roles.note_start({"n": n})
    if job.attempt == 1 and roles.is_flaky({"n": n}):
        raise ValueError("the first attempt fails")


def prepare(url: str) -> None:
    migrate(url)


async def enqueue(url: str, asked: roles.Enqueue) -> None:
    task = app.tasks[asked.task]
    app.execute(survey())  # connects
    await roles.send(asked, lambda payload: task.enqueue(**payload), task.enqueue_many)


def work(url: str, concurrency: int) -> None:
    command = ["--app", "peer:app", "worker", "--concurrency", str(concurrency)]
    # Where Faultline itself is imported from may be given, to compare two of its sources.
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    os.execve(  # noqa: S606 - the worker is to be this very process
        sys.executable, [sys.executable, "-m", "faultline", *command], environment
    )


if __name__ == "__main__":
    roles.main(prepare=prepare, enqueue=enqueue, work=work)
