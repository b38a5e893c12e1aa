"""Handles SIGTERM and SIGINT at each stage of a long-running process.

| stage | a signal |
|---|---|
| starting, before any work | ends the process at once, with exit code 0 |
| the event loop starts or closes | is counted; the loop's first step acts on it |
| the loop runs | is passed to the service, which stops in order |
| the interpreter shuts down | is ignored |

An exception that a signal handler raises while asyncio starts or closes a loop leaves that loop half
open, and the process would end with an error. Blocking the signals instead is not enough: another
thread would receive them, and child processes would inherit the mask.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Protocol, TypeVar

from faultline.supported_system import require_posix_for_services

T = TypeVar("T")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_READ_BYTES = 4096


class UvicornServer(Protocol):
    """The methods of `uvicorn.Server` that `serve` uses."""

    @property
    def config(self) -> Any: ...
    def handle_exit(self, sig: int, frame: FrameType | None) -> None: ...
    async def serve(self, sockets: list[socket.socket] | None = None) -> None: ...


class Termination:
    """Installs handlers of SIGTERM and SIGINT from `with` to the end of the process.

    A temporary one restores the former handlers at the end of its block, for a program that goes on.
    """

    def __init__(self, *, is_temporary: bool = False) -> None:
        require_posix_for_services()
        self._is_temporary = is_temporary
        self._former: dict[int, Any] = {}
        self._may_exit = True  # no work has begun: exit at once
        self._received = 0
        self._delivered = 0
        self._stop: Callable[[], object] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Termination:
        for number in SIGNALS:
            self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_starting, self._may_exit = self._may_exit, False
        if self._is_temporary:
            for number, handler in self._former.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._received or not self._is_temporary:
            # Registered last: while Python shuts down it restores the default handlers.
            atexit.register(_ignore)
        if is_starting and self._received and isinstance(error, Exception):
            # SystemExit was raised inside code, such as an extension module, that wrapped it.
            raise SystemExit(0) from None

    def run(
        self,
        main: Callable[[], Coroutine[Any, Any, T]],
        *,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> T:
        """Run `main` on a new event loop; `main` must enter `listening` in its first step."""
        self._may_exit = False
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main())

    def serve(self, server: UvicornServer, listener: socket.socket) -> None:
        """Run a uvicorn server until a signal, even one from before its start."""

        async def main() -> None:
            with self.listening(lambda: server.handle_exit(signal.SIGTERM, None)):
                await server.serve(sockets=[listener])

        self.run(main, loop_factory=server.config.get_loop_factory())

    @contextmanager
    def listening(
        self, stop: Callable[[], object], *, on_signal: Callable[[], object] = lambda: None
    ) -> Iterator[None]:
        """Call `stop` on the event loop for each signal, including earlier ones.

        `on_signal` is called too, from another thread, even while the loop is blocked.
        """
        self._loop, self._stop = asyncio.get_running_loop(), stop
        for _ in range(self._received - self._delivered):
            on_signal()
        with _wakeups(self._loop, on_signal):
            self._deliver()
            try:
                yield
            finally:
                self._loop = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received += 1
        if self._may_exit:
            # In a finalizer Python only prints this exception; `_received` still counts the signal.
            sys.exit(0)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._loop is not None and self._delivered < self._received:
            self._delivered += 1
            self._stop()


@contextmanager
def _wakeups(loop: asyncio.AbstractEventLoop, on_signal: Callable[[], object]) -> Iterator[None]:
    """Wake the loop for every signal, by a thread that reads the wakeup socket.

    Python runs a signal handler between two bytecodes of the main thread, so not while that thread waits
    in C code.
    """
    sending, receiving = socket.socketpair()
    sending.setblocking(False)
    # uvloop has set its own descriptor; the bytes are passed on to it.
    previous = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)

    def read() -> None:
        while numbers := receiving.recv(_READ_BYTES):
            if previous != -1:
                with contextlib.suppress(OSError):
                    os.write(previous, numbers)
            for number in numbers:
                if number in SIGNALS:
                    on_signal()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(lambda: None)

    thread = threading.Thread(target=read, name="faultline-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        sending.close()
        thread.join()
        receiving.close()


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _forget_in_child() -> None:
    """Reset signals in a forked child: they must not reach the parent."""
    if any(_is_ours(signal.getsignal(number)) for number in SIGNALS):
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_ours(handler: object) -> bool:
    return isinstance(getattr(handler, "__self__", None), Termination)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
