"""Asynchronous interrupts of handler threads, and sections that hold them back.

A handler in a thread is ended by an exception that CPython raises between two bytecodes of that thread.
Inside a connection pool such an exception loses a connection: the pool cleans up after `Exception` only,
and no code can clean up between "the connection is taken" and "the caller has it". So code that takes or
returns a pooled connection runs inside `held()`: an interrupt that arrives there is kept, and raised when
the section ends, at the beginning of `released()`, or where the code calls `deliver()`.

CPython raises at most one such exception per call; every later delivery is at a place that this module
chose.
"""

from __future__ import annotations

import ctypes
import threading
import time
from types import TracebackType

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = [ctypes.c_ulong, ctypes.py_object]
_LOCK_SECONDS = 1.0


class _Local(threading.local):
    interrupts: Interrupts | None = None


_local = _Local()


class AttemptAborted(BaseException):
    """Raised in a handler's thread. `except Exception` does not catch it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if (own := _local.interrupts) is not None:
            own.is_sent = False  # it has arrived


class Interrupts:
    """The interrupts of one call in one thread.

    Other threads send them; this thread holds them back or raises them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._depth = 0  # how many sections of the thread hold interrupts back
        self._is_pending = False
        self.is_sent = False  # CPython was asked to raise, and has not yet

    def begin(self) -> None:
        """Called by the thread, before the call."""
        _local.interrupts = self
        with self._lock:
            self._thread_id = threading.get_ident()
            if self._is_pending:
                raise AttemptAborted

    def end(self) -> None:
        """Called by the thread after the call: no interrupt may hit the next call."""
        try:
            with self._lock:
                self._thread_id = None
            self._let_arrive()
        except AttemptAborted:  # the call has ended
            self._thread_id = None
        _local.interrupts = None

    def send(self) -> None:
        """Interrupt the thread; may be called from any thread."""
        # Bounded: the thread may have been interrupted while it held the lock.
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            return
        try:
            if self._thread_id is None or self._depth:
                self._is_pending = True
            else:
                self.is_sent = True
                _raise_in_thread(self._thread_id, AttemptAborted)
        finally:
            self._lock.release()

    def hold(self) -> None:
        depth = self._depth + 1
        try:
            with self._lock:
                self._depth = depth
            self._let_arrive()
        except AttemptAborted:
            self._depth, self._is_pending = depth, True

    def _let_arrive(self) -> None:
        """Wait for an exception that CPython was asked to raise, a few bytecodes long.

        It cannot be withdrawn: CPython 3.11 then keeps the flag that makes it look for such exceptions,
        which slows down every thread and makes a traced thread loop without end.
        """
        while self.is_sent:
            time.sleep(0)

    def release(self) -> None:
        with self._lock:
            self._depth -= 1
            is_due = self._is_pending and not self._depth
        if is_due:
            self.deliver()

    def deliver(self) -> None:
        """Raise the interrupt that was held back, if there is one."""
        with self._lock:
            is_due, self._is_pending = self._is_pending, False
        if is_due:
            raise AttemptAborted


class Hold:
    """A section that holds interrupts of the current thread back."""

    __slots__ = ("_interrupts",)

    def __init__(self, interrupts: Interrupts | None) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> Hold:
        if self._interrupts is not None:
            self._interrupts.hold()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._interrupts is not None:
            self._interrupts.release()

    def released(self) -> Released:
        """Let interrupts through for a while; a kept one is raised at the beginning."""
        return Released(self._interrupts)


class Released:
    """A part of a held section in which interrupts are raised: the user's code."""

    __slots__ = ("_interrupts",)

    def __init__(self, interrupts: Interrupts | None) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        if (own := self._interrupts) is None:
            return
        try:
            own.release()
        except BaseException:
            own.hold()  # the outer section ends it
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._interrupts is not None:
            self._interrupts.hold()


def held() -> Hold:
    """Hold interrupts of the current thread back."""
    return Hold(_local.interrupts)


def deliver() -> None:
    """Raise a kept interrupt inside a held section, where no cleanup is needed."""
    if (own := _local.interrupts) is not None:
        own.deliver()
