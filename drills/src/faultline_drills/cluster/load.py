"""Workers and a producer that stay busy through failovers and are never restarted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from faultline_drills.clients.producer import Producer
from faultline_drills.context import DrillContext
from faultline_drills.judging.measures import longest_silence
from faultline_drills.workload.tasks import pay

_PAUSE_SECONDS = 0.05
# The producer pauses above this, or a slow machine would never finish the jobs.
_MOST_WAITING = 200


class BackgroundLoad:
    """Starts at once; ends with `end`, or with the drill."""

    def __init__(
        self,
        drill: DrillContext,
        *,
        producer: Producer | None = None,
        options: Sequence[str] = (),
        **arguments: Any,
    ) -> None:
        """`options` are for the workers, `arguments` for the jobs."""
        self._drill = drill
        self._arguments = arguments
        self._stop = threading.Event()
        self._acknowledged: list[str] = []  # jobs, oldest first
        self.workers = [drill.worker(*options) for _ in range(drill.settings.workers)]
        self._producer = producer or Producer("producer", drill.url, drill.history)
        thread = ThreadPoolExecutor(1)
        self._submitting: Future[None] = thread.submit(self._submit)
        drill.stack.callback(self._producer.close)
        drill.stack.callback(thread.shutdown)
        drill.stack.callback(self._stop.set)

    def wait_for_commits(self, count: int, where: str) -> None:
        """Wait for the commits of so many jobs that are acknowledged from now on.

        Older jobs do not count: the caller asks about the time after an event.
        """
        older = len(self._acknowledged)

        def are_committed() -> bool:
            return len(self._committed().intersection(self._acknowledged[older:])) >= count

        self._drill.wait_until(are_committed, f"{count} commits {where}")

    def _committed(self) -> set[str]:
        """The jobs whose commit was acknowledged to a worker."""
        events = [worker.events_named("commit_ok") for worker in self.workers]
        return {str(each["job_id"]) for found in events for each in found}

    def end(self) -> None:
        """Stop submitting, wait for all jobs, and expect that no worker has ended."""
        drill = self._drill
        self._stop.set()
        self._submitting.result(drill.settings.timeout_seconds)
        drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
        gone = [worker.name for worker in self.workers if not worker.is_alive]
        drill.expect(not gone, f"{', '.join(gone)} ended during the drill")
        drill.measured["ms_without_a_commit"] = round(1000 * longest_silence(drill.history))

    def _submit(self) -> None:
        number = 0
        while not self._stop.wait(_PAUSE_SECONDS):
            if len(self._acknowledged) - len(self._committed()) > _MOST_WAITING:
                continue
            number += 1
            job_id = self._producer.submit(
                pay,
                key=f"payment {number}",
                number=number,
                parts=2,
                work_seconds=0.02,
                stop=self._stop,
                **self._arguments,
            )
            if job_id is not None:
                self._acknowledged.append(str(job_id))
