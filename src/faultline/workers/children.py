"""Child processes for handlers that use the CPU, or that must be killed to stop."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import DatabaseUnavailable, FaultlineError, Reject, StaleLease
from faultline.events import LogSettings
from faultline.hooks import Hooks
from faultline.logs import inherited_settings
from faultline.model import CommitPhase
from faultline.postgres.sessions import ServerAddress
from faultline.retry_control import Retry, Snooze
from faultline.task import Task
from faultline.tracing import tracing
from faultline.workers.child import Begun, Failure, Request, ServerFailed, Success, main
from faultline.workers.child_progress import Pipe, Progressed
from faultline.workers.leases import Lease

# Not fork: a forked child would keep the worker's own connections open after its death.
_context = multiprocessing.get_context("spawn")
_SHUTDOWN_SECONDS = 4.0


class RemoteError(FaultlineError):
    """An exception that a handler raised in a child process."""

    code = "handler_error"

    def __init__(
        self, message: str, *, trace: str, sqlstate: str | None, is_server_loss: bool
    ) -> None:
        super().__init__(message)
        self.add_note(trace)
        self.sqlstate = sqlstate
        self.is_server_loss = is_server_loss  # decided by the child, which has the original error


class ChildDied(FaultlineError):
    """The child process ended: killed, out of memory, or a crash in native code."""

    code = "child_died"


class TaskMissing(FaultlineError):
    """The code that a child process imported does not have the task."""

    code = "unknown_task"


class Child:
    def __init__(self, url: str, logging: LogSettings | None, imports: Sequence[str] = ()) -> None:
        self.pipe, far_end = _context.Pipe()
        left_servers, self._left_servers = _context.Pipe(duplex=False)
        self.deadline = _context.Value("d", 0.0, lock=False)
        self.process = _context.Process(
            target=main,
            args=(far_end, left_servers, self.deadline, url, logging, tuple(imports)),
            daemon=True,
            name="faultline-handler",
        )
        self.process.start()
        far_end.close()  # otherwise the pipe would stay open after the child's death
        left_servers.close()

    def leave(self, server: ServerAddress) -> None:
        """Make the child close its connections to a server that this worker has left."""
        with contextlib.suppress(OSError):  # the child died or is being ended
            self._left_servers.send(server)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self._left_servers.close()


class Children:
    """A pool of child processes: as many as are needed at once, reused afterwards."""

    def __init__(self, url: str, hooks: Hooks | None = None) -> None:
        self._url = url
        self._hooks = hooks
        self._imports = () if hooks is None else tuple(hooks.child_imports)
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(max(4, os.cpu_count() or 1))

    def borrow(self) -> Child:
        """Take an idle child or start one; waits while all CPUs have a busy child."""
        self._room.acquire()
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.process.is_alive():
                    return child
                self._all.discard(child)
            try:
                child = Child(self._url, inherited_settings(), self._imports)
            except BaseException:
                self._room.release()
                raise
            self._all.add(child)
            return child

    def give_back(self, child: Child) -> None:
        with self._lock:
            self._idle.append(child)
        self._room.release()

    def lose(self, child: Child) -> None:
        """Remove a borrowed child that died or was killed."""
        self.discard(child)
        self._room.release()

    def discard(self, child: Child) -> None:
        with self._lock:
            self._all.discard(child)
        child.end()

    def leave(self, server: ServerAddress) -> None:
        with self._lock:
            children = tuple(self._all)
        for child in children:
            child.leave(server)

    def close(self) -> None:
        if tracing.spans is not None or (self._hooks is not None and self._hooks.shutdown):
            self._close_idle_children()
        for child in tuple(self._all):
            self.discard(child)

    def _close_idle_children(self) -> None:
        """Close the pipes of idle children, so that they shut down by themselves."""
        for child in self._idle:
            child.pipe.close()
        give_up_at = time.monotonic() + _SHUTDOWN_SECONDS
        for child in self._idle:
            child.process.join(max(0.0, give_up_at - time.monotonic()))


class ChildCall:
    """One handler in a child process. A thread waits for it; an interrupt kills it."""

    def __init__(
        self,
        children: Children,
        task: Task[Any, Any],
        transactions: AttemptTransactions,
        lease: Lease,
        *,
        on_progress: Callable[[float, str | None], None],
    ) -> None:
        self._children = children
        self._on_progress = on_progress
        self._transactions = transactions
        self._lease = lease
        self._request = _request(task, lease)
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._interrupted = False
        self.on_begin: Callable[[], object] = lambda: None
        self.thread_id: int | None = None

    def __call__(self) -> Any:
        self.thread_id = threading.get_ident()
        child = self._children.borrow()
        child.deadline.value = self._lease.deadline
        self._lease.shared_deadline = child.deadline
        with self._lock:
            self._child = child
            interrupted = self._interrupted
        try:
            if interrupted:
                raise ChildDied("the attempt was ended before it began")
            child.pipe.send(self._request)
            answer = self._listen(child.pipe)
        except (EOFError, OSError) as error:
            child.process.kill()  # a child that broke the protocol is ended too
            child.process.join()
            code = child.process.exitcode
            raise ChildDied(f"the process of the handler died (exit code {code})") from error
        finally:
            self._lease.shared_deadline = None
            with self._lock:
                self._child = None
            if child.process.is_alive() and not self._interrupted:
                self._children.give_back(child)
            else:
                self._children.lose(child)
        if isinstance(answer, Failure) and answer.kind == "stale":
            refusal = StaleLease(answer.reason, current_token=answer.current_token)
            self._transactions.refusal = refusal
            raise refusal
        if isinstance(answer, Success):
            self._transactions.discarded = answer.discarded
        try:
            return _unpack(answer)
        except FaultlineError as error:
            error.__dict__["failure"] = answer
            raise

    def _listen(self, pipe: Pipe) -> Success | Failure:
        while True:
            match message := pipe.recv():
                case Begun():
                    self.on_begin()
                case CommitPhase():
                    self._transactions.phase = message
                case Progressed(fraction, text):
                    self._on_progress(fraction, text)
                case ServerFailed():
                    self._transactions.server_failed = True
                case Success() | Failure():
                    return message
                case _:
                    raise OSError(f"a child process sent an unknown message: {message!r}")

    def interrupt(self) -> None:
        with self._lock:
            self._interrupted = True
            if self._child is not None:
                with contextlib.suppress(OSError):
                    self._child.process.kill()


def failure_of(error: Exception) -> Failure | None:
    """What a child process reported, if the error came from one."""
    failure = vars(error).get("failure")
    return failure if isinstance(failure, Failure) else None


def _request(task: Task[Any, Any], lease: Lease) -> Request:
    handler = task.handler
    trace_context = None if lease.trace is None else lease.trace.carrier
    return Request(
        handler.__module__, handler.__qualname__, lease.claim, lease.lease_seconds, trace_context
    )


def _unpack(answer: Success | Failure) -> Any:
    if isinstance(answer, Success):
        return None if answer.result is None else orjson.loads(answer.result)
    match answer.kind:
        case "missing":
            raise TaskMissing(answer.message)
        case "reject":
            raise Reject(answer.message)
        case "snooze":
            seconds, until, reason = answer.request
            raise Snooze(seconds, until=until, reason=reason)
        case "retry":
            seconds, _, reason = answer.request
            retry = Retry(seconds or 0.0, reason=reason)
            retry.add_note(answer.trace)
            raise retry
        case "unavailable":
            raise DatabaseUnavailable(answer.message)
        case _:
            raise RemoteError(
                answer.message,
                trace=answer.trace,
                sqlstate=answer.sqlstate,
                is_server_loss=answer.is_server_loss,
            )
