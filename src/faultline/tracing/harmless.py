"""What goes wrong in a tracer, a sampler or an exporter is not the job's problem."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from faultline.events import Event, emit

P = ParamSpec("P")
T = TypeVar("T")

_said: set[str] = set()


def harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """None instead of an error, which is said once for each kind."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            kind = type(error).__name__
            if kind not in _said and len(_said) < 100:
                _said.add(kind)
                emit(Event.DEGRADED, reason=f"tracing failed with {kind}; jobs go on without")
            return None

    return guarded
