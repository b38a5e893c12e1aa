"""Many whole workers in one process, until SIGTERM: `python -m benchmarks.scaling.crowd --workers 20`."""

from __future__ import annotations

import asyncio
import signal

import click

from benchmarks.scaling.application import app
from faultline.config import WorkerSettings
from faultline.reconciler import Reconciler
from faultline.workers import Worker


async def work(count: int) -> None:
    crowd = [
        Worker(app, WorkerSettings(), companions=[Reconciler(app.database_url).run])
        for _ in range(count)
    ]

    def stop() -> None:
        for worker in crowd:
            worker.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await asyncio.gather(*(worker.run() for worker in crowd))


@click.command()
@click.option("--workers", type=int, required=True)
def main(workers: int) -> None:
    asyncio.run(work(workers))


if __name__ == "__main__":
    main()
