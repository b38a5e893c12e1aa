"""A handler's call in a thread that another thread can interrupt.

A thread inside a C call cannot be interrupted. The fence protects the data, not this.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from faultline.errors import HandlerExit
from faultline.handler_errors import tame
from faultline.interrupts import AttemptAborted, Interrupts

__all__ = ["AttemptAborted", "InterruptibleCall"]


class InterruptibleCall:
    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._interrupts = Interrupts()
        self.on_begin: Callable[[], object] = lambda: None
        self.thread_id: int | None = None

    def __call__(self) -> Any:
        self.thread_id = threading.get_ident()
        try:
            self._interrupts.begin()
            self.on_begin()
            return self._function(*self._args, **self._kwargs)
        except (AttemptAborted, asyncio.CancelledError):
            raise
        except BaseException as error:
            if issubclass(type(error), StopIteration):  # a future cannot carry StopIteration
                raise HandlerExit("the handler raised StopIteration") from error
            # SystemExit and the like would be raised again on the event loop and end the process. So would
            # the errors that the methods of a broken exception class raise there.
            tamed = tame(error)
            if tamed is error:
                raise
            raise tamed from None
        finally:
            self._interrupts.end()

    def interrupt(self) -> None:
        self._interrupts.send()
