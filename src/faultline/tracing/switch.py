"""Whether this process traces. Nothing of OpenTelemetry is imported before the application has done so.

Hooks look at `tracing.spans`, or at the trace of a lease, which is None while nobody traces.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from faultline.errors import InvalidSettings
from faultline.tracing.harmless import harmless

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from faultline.tracing.spans import Spans

T = TypeVar("T")

VARIABLE = "FAULTLINE_TRACING"
_WORDS = {"": None, "on": True, "1": True, "true": True, "off": False, "0": False, "false": False}


class Enqueueing:
    """An enqueue that is not traced: it carries on what it was given."""

    def __init__(self, carrier: str | None = None) -> None:
        self.carrier = carrier  # for the rows of the jobs

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
        """Trace with this provider instead of OpenTelemetry's global one; None goes back to that."""
        if provider is None or self._is_forbidden:
            self.spans = None
            return
        from faultline.tracing.spans import Spans

        self.spans = Spans(provider)

    def look(self) -> Spans | None:
        """What to trace with, if the application has set up OpenTelemetry by now."""
        if self.spans is None and "opentelemetry.trace" in sys.modules and not self._is_forbidden:
            self._find()
        return self.spans

    @harmless
    def _find(self) -> None:
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            self.use(provider)

    def enqueueing(
        self, task: str, queue: str, count: int = 1, *, parent: str | None = None
    ) -> Enqueueing:
        """To enqueue in: `with` it, and give the jobs its `carrier`. `parent` is what an outside caller
        sent along (see `carrier.from_headers`); it counts where nothing in this process is traced."""
        spans = self.look()
        if spans is not None:
            traced = spans.enqueueing(task, queue, count, parent)
            if traced is not None:
                return traced
        return _UNTRACED if parent is None else Enqueueing(parent)


def wish() -> bool | None:
    """What FAULTLINE_TRACING asks for; None when it is left open."""
    given = os.environ.get(VARIABLE, "").strip().lower()
    try:
        return _WORDS[given]
    except KeyError:
        raise InvalidSettings(
            f"{VARIABLE}={given[:40]!r} is neither on nor off", hint=f"{VARIABLE}=on, off or unset"
        ) from None


def version() -> str:
    """Of Faultline; not imported, because the package's own module imports all the others."""
    return str(sys.modules["faultline"].__version__)


tracing = Tracing()
