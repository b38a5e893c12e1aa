"""A task whose handler does many of its jobs together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from faultline.batch import Batch
from faultline.batch_settings import BatchSettings
from faultline.errors import InvalidInput
from faultline.handler_errors import name_of, text_of
from faultline.handler_signatures import annotated_function, batch_signature
from faultline.task import Task, TaskSettings

P = ParamSpec("P")
R = TypeVar("R")


class BatchTask(Task[P, R]):
    """A task of `@app.batch_task`; its handler gets a Batch."""

    def _describe(
        self, handler: Callable[..., Any], settings: TaskSettings
    ) -> tuple[inspect.Signature, Callable[..., Any]]:
        batch = settings.batch
        assert batch is not None  # noqa: S101 - the application makes this class for it
        signature = batch_signature(handler, batch.arguments)
        return signature, annotated_function(batch.arguments or handler)

    @property
    def batch(self) -> BatchSettings:
        settings = self.settings.batch
        assert settings is not None  # noqa: S101
        return settings

    def job_arguments(self, payload_json: str) -> Any:
        """What `job.args` is for this payload; InvalidInput if it does not fit."""
        arguments, make = self.arguments(payload_json), self.batch.arguments
        if make is None:
            return arguments
        try:
            return make(**arguments)
        except InvalidInput:
            raise
        except Exception as error:  # the user's class refuses them
            raise InvalidInput(
                f"the payload does not fit {self.name}: {name_of(error)}: {text_of(error)}"
            ) from None

    def _takes(self, payload: dict[str, Any]) -> bool:
        return self.batch.arguments is None or super()._takes(payload)

    if not TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Call the handler with a batch, for tests."""
            if len(args) != 1 or kwargs or not isinstance(args[0], Batch):
                self._refuse_missing_batch()
            return self.handler(args[0])

    def _refuse_missing_batch(self) -> NoReturn:
        raise TypeError(
            f"calling {self.name} runs its handler, which takes a batch; to enqueue a job:"
            f" {self._example()}"
        )

    def __repr__(self) -> str:
        return f"<BatchTask {self.name}>"

    def attempt(self, batch: Any, /, **arguments: Any) -> Any:
        """Run a plain handler, with the hooks of each of its jobs around it."""
        handler: Callable[..., Any] = self.handler
        if self.hooks is None or not self.hooks.attempt:
            return handler(batch)
        return self.hooks.run_attempt(batch.jobs, functools.partial(handler, batch))

    def coroutine(self, batch: Any, /, **arguments: Any) -> Coroutine[Any, Any, Any]:
        handler: Callable[..., Any] = self.handler
        if self.hooks is None or not self.hooks.attempt:
            coroutine: Coroutine[Any, Any, Any] = handler(batch)
            return coroutine
        call = functools.partial(handler, batch)
        return self.hooks.run_attempt_async(batch.jobs, call)
