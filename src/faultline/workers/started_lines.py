"""What a worker says on a terminal when it starts, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from faultline.config import WorkerSettings
from faultline.events import Event
from faultline.queue_shares import QueueShare
from faultline.wording import count, listing

_MAX_TASKS, _MAX_QUEUES = 8, 8


def started_lines(
    settings: WorkerSettings,
    *,
    tasks: Sequence[str],
    queues: Sequence[str],
    is_every: bool,
    after_crash_seconds: float,
    after_silence_seconds: float,
) -> list[str]:
    """Two lines: what the worker runs, and when others take over its jobs."""
    shares = settings.queue_shares
    shown = [f"{name}{_limits(shares.get(name))}" for name in queues]
    where = f"the queue{'' if len(shown) == 1 else 's'} {listing(shown, _MAX_QUEUES)}"
    if is_every:
        own = shares.get("*")
        where = f"every queue{_limits(own)}, now {listing(shown, _MAX_QUEUES)}"
    at_once = f"{count(settings.concurrency, 'job')} at once"
    return [
        f"{Event.WORKER_STARTED}: {settings.worker_id} runs {count(len(tasks), 'task')}"
        f" ({listing(sorted(tasks), _MAX_TASKS)}) of {where}; at most {at_once}",
        f"if it is killed, its jobs run again within {after_crash_seconds:.3g} s; if it stalls, within"
        f" {after_silence_seconds:.3g} s",
    ]


def _limits(share: QueueShare | None) -> str:
    if share is None:
        return ""
    parts = [
        *([f"at most {share.slots}"] if share.slots else []),
        *([f"weight {share.weight}"] if share.weight else []),
    ]
    return f" ({', '.join(parts)})" if parts else ""
