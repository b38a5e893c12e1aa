"""Runs many workers in one process until SIGTERM; a program for the part `idle`."""

from __future__ import annotations

import asyncio
import signal

import click

from benchmarks.scaling.application import app
from faultline.config import Retention, WorkerSettings
from faultline.workers.worker_process import make_worker


async def work(count: int) -> None:
    all_workers = [
        make_worker(app, WorkerSettings(queues=("default",)), Retention()) for _ in range(count)
    ]

    def stop() -> None:
        for worker in all_workers:
            worker.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await asyncio.gather(*(worker.run() for worker in all_workers))


@click.command()
@click.option("--workers", type=int, required=True)
def main(workers: int) -> None:
    asyncio.run(work(workers))


if __name__ == "__main__":
    main()
