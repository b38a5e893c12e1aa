"""The stack of a thread or task, as text for the log and the registry."""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import NamedTuple

_INNERMOST_FRAMES = 40
_STACK_LENGTH = 8_000


class Stack(NamedTuple):
    frame: str  # the innermost frame: file, line, function and source
    text: str  # all frames, the innermost last


def of_thread(thread_id: int | None) -> Stack | None:
    """The stack of a thread; None if it has ended or runs no Python code yet."""
    frame = None if thread_id is None else sys._current_frames().get(thread_id)
    if frame is None:
        return None
    return _described(traceback.extract_stack(frame))


def of_task(task: asyncio.Task[object] | None) -> Stack | None:
    """The stack of a suspended task."""
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
    """Remove what PostgreSQL cannot store: NUL and lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
