"""Where a thread is right now, as text for a log line and for the registry."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import NamedTuple

_INNERMOST_FRAMES = 40
_STACK_LENGTH = 8_000


class Stack(NamedTuple):
    frame: str  # the innermost one: file, line, function and source
    text: str  # all of it, the innermost frame last


def of_thread(thread_id: int | None) -> Stack | None:
    """None for a thread that has ended, or that runs no Python code yet."""
    frame = None if thread_id is None else sys._current_frames().get(thread_id)
    if frame is None:
        return None
    return _described(traceback.extract_stack(frame))


def of_task(task: asyncio.Task[object] | None) -> Stack | None:
    """Where a suspended task waits."""
    frames = [] if task is None else task.get_stack()
    found = [summary for frame in frames for summary in traceback.extract_stack(frame, limit=1)]
    return _described(traceback.StackSummary.from_list(found)) if found else None


def _described(stack: traceback.StackSummary) -> Stack:
    last = stack[-1]
    source = f": {last.line}" if last.line else ""
    frame = f"{last.filename}:{last.lineno} in {last.name}{source}"
    text = "".join(traceback.format_list(stack[-_INNERMOST_FRAMES:]))
    return Stack(_storable(frame), _storable(text[-_STACK_LENGTH:]))


def _storable(text: str) -> str:
    """PostgreSQL stores neither NUL nor lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
