"""A call in a thread that can be asked to end: a flag, then an exception inside the thread.

Best effort: a thread inside a C call cannot be interrupted. The fence is what protects.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from typing import Any

from faultline.errors import HandlerExit

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = [ctypes.c_ulong, ctypes.py_object]
_NOTHING = ctypes.py_object()  # NULL: takes back what has not been raised yet
_LOCK_SECONDS = 1.0


class AttemptAborted(BaseException):
    """Raised inside a handler's thread. Not an Exception, so that `except Exception` lets it pass."""


class InterruptibleCall:
    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._interrupted = False
        self.on_begin: Callable[[], object] = lambda: None

    def __call__(self) -> Any:
        ident = threading.get_ident()
        with self._lock:
            if self._interrupted:
                raise AttemptAborted
            self._thread_id = ident
        try:
            self.on_begin()
            return self._function(*self._args, **self._kwargs)
        except (Exception, AttemptAborted, asyncio.CancelledError) as error:
            if isinstance(error, StopIteration):  # a future cannot carry it
                raise HandlerExit("the handler raised StopIteration") from error
            raise
        except BaseException as error:
            # Let through, SystemExit and its kind would be raised again on the event loop, and end
            # the whole process.
            raise HandlerExit.of(error) from error
        finally:
            with self._lock:
                self._thread_id = None
            _raise_in_thread(ident, _NOTHING)  # an interrupt on its way must not hit the next call

    def interrupt(self) -> None:
        self._interrupted = True
        # Bounded: the thread may have been interrupted while it held the lock.
        if self._lock.acquire(timeout=_LOCK_SECONDS):
            try:
                if self._thread_id is not None:
                    _raise_in_thread(self._thread_id, AttemptAborted)
            finally:
                self._lock.release()
