"""Sentry, if the application uses it: a scope per attempt, an event per failure.

Nothing here imports sentry_sdk. A worker uses it if the application has imported and initialised it, at
import or in a startup function. An error of the SDK never changes the outcome of a job.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import Context
from typing import Any

from faultline.model import Claim

_FLUSH_SECONDS = 2.0


class Sentry:
    """The SDK of this process, once `find` has found it initialised."""

    def __init__(self) -> None:
        self._sdk: Any = None

    @property
    def is_on(self) -> bool:
        return self._sdk is not None

    def find(self) -> None:
        """Use sentry_sdk if it is imported and initialised; version 2 or later."""
        sdk: Any = sys.modules.get("sentry_sdk")
        is_initialized = getattr(sdk, "is_initialized", None)
        self._sdk = sdk if is_initialized is not None and is_initialized() else None

    @contextlib.contextmanager
    def scope(self, claim: Claim) -> Iterator[None]:
        """An isolation scope with the job's tags, for everything that is captured inside."""
        with self._sdk.isolation_scope() as scope:
            with contextlib.suppress(Exception):
                _tag(scope, claim)
                scope.set_transaction_name(claim.task, source="task")
            yield

    @contextlib.contextmanager
    def scope_of_batch(self, claim: Claim, jobs: int) -> Iterator[None]:
        """The same for a batch, which has many jobs."""
        with self._sdk.isolation_scope() as scope:
            with contextlib.suppress(Exception):
                scope.set_tag("task", claim.task)
                scope.set_tag("queue", claim.queue)
                scope.set_tag("batch_jobs", jobs)
                scope.set_transaction_name(claim.task, source="task")
            yield

    def capture(
        self,
        claim: Claim,
        error: BaseException,
        *,
        is_final: bool,
        context: Context | None = None,
    ) -> bool:
        """Send a failed attempt: as an error if the job is dead, else as a warning.

        In the context of the handler the SDK recognises an error that the handler has logged, which its
        logging integration has sent already.
        """
        if context is not None:
            return context.copy().run(self.capture, claim, error, is_final=is_final)
        if self._sdk is None:
            return False
        with contextlib.suppress(Exception), self._sdk.new_scope() as scope:
            _tag(scope, claim)
            scope.set_level("error" if is_final else "warning")
            self._sdk.capture_exception(error)
        return True

    def flush(self) -> None:
        """Wait until events are sent, for a process that may be killed next."""
        if self._sdk is not None:
            with contextlib.suppress(Exception):
                self._sdk.flush(_FLUSH_SECONDS)


def _tag(scope: Any, claim: Claim) -> None:
    scope.set_tag("job_id", claim.id)
    scope.set_tag("task", claim.task)
    scope.set_tag("queue", claim.queue)
    scope.set_tag("attempt", claim.attempt)
    scope.set_tag("token", claim.fencing_token)


sentry = Sentry()
