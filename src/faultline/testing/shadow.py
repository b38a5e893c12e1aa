"""A second application with the same tasks, whose handlers are watched from outside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from faultline.app import Faultline
from faultline.task import Task, TaskOptions

Handler = Callable[..., Any]
Wrap = Callable[[Task[Any, Any]], Handler]


def shadow_of(app: Faultline, wrap: Wrap, *, options: Mapping[str, Any] | None = None) -> Faultline:
    """The real worker runs it as it would run `app`: same names, same options but for `options`."""
    shadow = Faultline(app.database_url, prepare_transaction=app.prepare_transaction)
    for task in app.tasks.values():
        own = {field.name: getattr(task.options, field.name) for field in fields(TaskOptions)}
        handler = functools.wraps(task.handler)(wrap(task))
        shadow.task(name=task.name, **{**own, **(options or {})})(handler)
    return shadow
