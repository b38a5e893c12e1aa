"""Whether this process traces.

OpenTelemetry is imported only if the application has imported it.

Callers check `tracing.spans`, or the trace of a lease; both are None while tracing is off.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from faultline.errors import InvalidSettings
from faultline.events import Event, emit

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from faultline.tracing.spans import Spans

P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "FAULTLINE_TRACING"
_WORDS = {"": None, "on": True, "1": True, "true": True, "off": False, "0": False, "false": False}
_MAX_LOGGED = 100
_logged: set[str] = set()  # kinds of errors


def suppress_errors(function: Callable[P, T]) -> Callable[P, T | None]:
    """Log errors of tracing code, once for each kind, and return None.

    A failure of tracing must not fail the job.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            kind = type(error).__name__
            if kind not in _logged and len(_logged) < _MAX_LOGGED:
                _logged.add(kind)
                emit(Event.DEGRADED, reason=f"tracing failed with {kind}; jobs run without traces")
            return None

    return guarded


class Enqueueing:
    """An enqueue without a span; the jobs get the trace context that was passed in."""

    def __init__(self, carrier: str | None = None) -> None:
        self.carrier = carrier  # the trace context for the jobs' rows

    def __enter__(self) -> Enqueueing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def answered(self, answer: T) -> T:
        return answer


_UNTRACED = Enqueueing()


class Tracing:
    def __init__(self) -> None:
        self.spans: Spans | None = None
        self._is_forbidden = os.environ.get(VARIABLE, "").strip().lower() in ("off", "0", "false")

    def use(self, provider: TracerProvider | None) -> None:
        """Trace with this provider; None restores OpenTelemetry's global one."""
        if provider is None or self._is_forbidden:
            self.spans = None
            return
        from faultline.tracing.spans import Spans

        self.spans = Spans(provider)

    def find(self) -> Spans | None:
        """The spans to use, if the application has set up OpenTelemetry by now."""
        if self.spans is None and "opentelemetry.trace" in sys.modules and not self._is_forbidden:
            self._use_global()
        return self.spans

    @suppress_errors
    def _use_global(self) -> None:
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            self.use(provider)

    def enqueueing(
        self, task: str, queue: str, count: int = 1, *, parent: str | None = None
    ) -> Enqueueing:
        """A context manager for an enqueue; store its `carrier` in the jobs.

        `parent` is the trace context of an outside caller (see `trace_context.from_headers`). It is used if
        there is no current span in this process.
        """
        spans = self.find()
        if spans is not None:
            traced = spans.enqueueing(task, queue, count, parent)
            if traced is not None:
                return traced
        return _UNTRACED if parent is None else Enqueueing(parent)


def requested() -> bool | None:
    """The value of FAULTLINE_TRACING; None if it is not set."""
    given = os.environ.get(VARIABLE, "").strip().lower()
    try:
        return _WORDS[given]
    except KeyError:
        raise InvalidSettings(
            f"{VARIABLE}={given[:40]!r} is neither on nor off", hint=f"{VARIABLE}=on, off or unset"
        ) from None


def version() -> str:
    """The version of Faultline. Importing the package here would be circular."""
    return str(sys.modules["faultline"].__version__)


tracing = Tracing()
