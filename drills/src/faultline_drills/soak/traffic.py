"""The producers of a soak: jobs of every kind, some submitted twice under one key."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from faultline.task import Task
from faultline_drills.clients.producer import Producer
from faultline_drills.context import DrillContext
from faultline_drills.soak.limited_jobs import draw_account
from faultline_drills.workload.tasks import note, pay, pay_by_hand, step_and_pay

_LARGEST_BACKLOG = 500  # unfinished jobs; then producers pause
_REPEATED_SHARE = 0.1
_REMEMBERED = 100


class Traffic:
    def __init__(
        self,
        drill: DrillContext,
        urls: Sequence[str],
        *,
        producers: int,
        jobs_per_second: float,
        limited_keys: int,
    ) -> None:
        self._drill = drill
        self._limited_keys = limited_keys
        self._pause_seconds = producers / jobs_per_second
        self._ending = threading.Event()
        self._backlogged = threading.Event()
        self.acknowledged = 0
        self.repeated = 0
        self.failures: list[BaseException] = []
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(
                target=self._produce, args=(number, urls[number % len(urls)]), daemon=True
            )
            for number in range(producers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self, timeout_seconds: float = 60.0) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout_seconds)

    def check_backlog(self) -> None:
        """Pause the producers while too many jobs are unfinished."""
        if self._drill.unfinished() > _LARGEST_BACKLOG:
            self._backlogged.set()
        else:
            self._backlogged.clear()

    def _produce(self, number: int, url: str) -> None:
        name = f"producer-{number + 1}"
        producer = Producer(name, url, self._drill.history)
        rng = random.Random(f"{self._drill.settings.seed} {name}")  # noqa: S311 - repeatable
        sent: deque[tuple[str, Task[Any, Any], dict[str, Any]]] = deque(maxlen=_REMEMBERED)
        try:
            for count in range(10**9):
                if self._ending.wait(self._pause_seconds * rng.uniform(0.5, 1.5)):
                    return
                if self._backlogged.is_set():
                    continue
                repeats = bool(sent) and rng.random() < _REPEATED_SHARE
                key, task, arguments = (
                    rng.choice(sent)
                    if repeats
                    else (f"{name} {count}", *_draw(rng, count, self._limited_keys))
                )
                if producer.submit(task, key=key, stop=self._ending, **arguments) is None:
                    return
                sent.append((key, task, arguments))
                with self._lock:
                    self.acknowledged += not repeats
                    self.repeated += repeats
        except BaseException as error:
            self.failures.append(error)
        finally:
            producer.close()


def _draw(
    rng: random.Random, number: int, limited_keys: int
) -> tuple[Task[Any, Any], dict[str, Any]]:
    plan = {"1": "raise@half"} if rng.random() < 0.02 else None
    work_seconds = round(rng.choice([0, 0, 0.02, 0.1, 0.3, 1.2]), 2)
    common: dict[str, Any] = {"number": number, "plan": plan}
    limited = 4 if limited_keys else 0
    kinds = ["pay", "by hand", "step", "note", "account"]
    match rng.choices(kinds, [5, 3, 1, 2, limited])[0]:
        case "account":
            task, arguments = draw_account(rng, limited_keys)
            return task, {**common, **arguments}
        case "pay":
            outside = rng.random() < 0.3
            paid = {"parts": rng.randint(1, 3), "work_seconds": work_seconds, "outside": outside}
            return pay, {**common, **paid}
        case "by hand":
            return pay_by_hand, {**common, "parts": 2, "work_seconds": work_seconds}
        case "step":
            return step_and_pay, {**common, "parts": 1}
        case _:
            return note, {"number": number}
