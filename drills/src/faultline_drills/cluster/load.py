"""Load: workers and a producer that are busy while servers come and go, and are never restarted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from faultline_drills.arena import Arena
from faultline_drills.measures import longest_silence
from faultline_drills.producer import Producer
from faultline_drills.workload import pay

_PAUSE_SECONDS = 0.05
# A machine too slow for the producer would never come to the end of the jobs.
_MOST_WAITING = 200


class Load:
    """Begins at once, and ends with `end`, or with the drill."""

    def __init__(
        self,
        arena: Arena,
        *,
        producer: Producer | None = None,
        options: Sequence[str] = (),
        **arguments: Any,
    ) -> None:
        """`options` are the workers', `arguments` the jobs'."""
        self._arena = arena
        self._arguments = arguments
        self._enough = threading.Event()
        self._acknowledged: list[str] = []  # jobs, oldest first
        self.workers = [arena.worker(*options) for _ in range(arena.settings.workers)]
        self._producer = producer or Producer("producer", arena.url, arena.history)
        thread = ThreadPoolExecutor(1)
        self._submitting: Future[None] = thread.submit(self._submit)
        arena.stack.callback(self._producer.close)
        arena.stack.callback(thread.shutdown)
        arena.stack.callback(self._enough.set)

    def wait_for_commits(self, count: int, where: str) -> None:
        """Of so many jobs whose submission is acknowledged from now on. Those that were waiting do not
        count: whatever has just happened, or is to be lost next, they are older than that."""
        older = len(self._acknowledged)

        def are_told() -> bool:
            return len(self._committed().intersection(self._acknowledged[older:])) >= count

        self._arena.wait_until(are_told, f"{count} commits {where}")

    def _committed(self) -> set[str]:
        """What the workers were told is done."""
        told = [worker.heard("commit_ok") for worker in self.workers]
        return {str(each["job_id"]) for heard in told for each in heard}

    def end(self) -> None:
        """Nothing more is submitted, all that was is done, and everybody is still there."""
        arena = self._arena
        self._enough.set()
        self._submitting.result(arena.settings.timeout_seconds)
        arena.wait_until(lambda: arena.unfinished() == 0, "the end of all jobs")
        gone = [worker.name for worker in self.workers if not worker.is_alive]
        arena.expect(not gone, f"{', '.join(gone)} did not live through it")
        arena.measured["ms_without_a_commit"] = round(1000 * longest_silence(arena.history))

    def _submit(self) -> None:
        number = 0
        while not self._enough.wait(_PAUSE_SECONDS):
            if len(self._acknowledged) - len(self._committed()) > _MOST_WAITING:
                continue
            number += 1
            job_id = self._producer.submit(
                pay,
                key=f"payment {number}",
                number=number,
                parts=2,
                work_seconds=0.02,
                stop=self._enough,
                **self._arguments,
            )
            if job_id is not None:
                self._acknowledged.append(str(job_id))
