"""A copy of an application whose handlers are wrapped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from faultline.app import Faultline
from faultline.task import Task, TaskOptions

Handler = Callable[..., Any]
Wrap = Callable[[Task[Any, Any]], Handler]


def instrumented_copy(
    app: Faultline, wrap: Wrap, *, options: Mapping[str, Any] | None = None
) -> Faultline:
    """Return a copy of `app` with wrapped handlers; `options` override the tasks'."""
    copy = Faultline(app.database_url, prepare_transaction=app.prepare_transaction)
    for task in app.tasks.values():
        own = {field.name: getattr(task.options, field.name) for field in fields(TaskOptions)}
        handler = functools.wraps(task.handler)(wrap(task))
        copy.task(name=task.name, **{**own, **(options or {})})(handler)
    return copy
