"""The inside of a child process: runs one handler after another, and says how each ended.

It has a connection of its own. The right to commit is in the token, not in the process, so nothing
here has to be trusted: a child that outlives its worker is refused like any stale one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faultline.errors import DatabaseUnavailable, InvalidInput, Reject, StaleLease
from faultline.handler_errors import name_of, tame, text_of, traceback_of
from faultline.job import Job
from faultline.model import Claim, CommitPhase
from faultline.payload import encode_json
from faultline.postgres.errors import is_server_loss
from faultline.postgres.sessions import AsyncPool, Place, Pool, make_async_pool, make_pool
from faultline.steady import steady_now
from faultline.task import Task
from faultline.tracing import tracing
from faultline.tracing.export import flush, set_up
from faultline.tracing.harmless import harmless

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace
    from faultline.tracing.spans import Spans

Pipe = multiprocessing.connection.Connection
_NAME = "faultline handler"


@dataclass(frozen=True, slots=True)
class Request:
    module: str
    qualname: str
    claim: Claim
    lease_seconds: float
    trace_context: str | None  # of the attempt, if its worker traces it


@dataclass(frozen=True, slots=True)
class Begun:
    """The child is up and has the request: the handler's time begins."""


@dataclass(frozen=True, slots=True)
class ServerFailed:
    """The server froze or was demoted while the attempt used it: the attempt is not charged."""


@dataclass(frozen=True, slots=True)
class Success:
    result: str  # JSON text


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as plain values: not every exception can be sent to another process."""

    kind: str  # stale, missing, reject, unavailable or error
    message: str
    trace: str = ""
    sqlstate: str | None = None
    reason: str = ""
    current_token: int | None = None
    is_server_loss: bool = False


class MirroredLease:
    """The worker's view of the lease, through a number in shared memory; 0 when it is lost."""

    def __init__(self, deadline: Any, lease_seconds: float) -> None:
        self._deadline = deadline
        self.lease_seconds = lease_seconds

    @property
    def is_lost(self) -> bool:
        return bool(self._deadline.value == 0)

    def remaining_seconds(self) -> float:
        return 0.0 if self.is_lost else float(self._deadline.value) - steady_now()


class ChildJob(Job):
    """Tells the worker about each phase before entering it, so that it knows what a death may mean."""

    def __init__(
        self,
        claim: Claim,
        lease: MirroredLease,
        pool: Callable[[], Pool],
        async_pool: AsyncPool | None,
        pipe: Pipe,
    ) -> None:
        self._pipe = pipe
        self._has_server_failed = False
        super().__init__(claim, lease, pool, async_pool)

    @property
    def _phase(self) -> CommitPhase:
        return self._current_phase

    @_phase.setter
    def _phase(self, phase: CommitPhase) -> None:
        self._current_phase = phase
        if phase is not CommitPhase.UNCOMMITTED:
            self._pipe.send(phase)

    @property
    def _is_blameless(self) -> bool:
        return self._has_server_failed

    @_is_blameless.setter
    def _is_blameless(self, is_blameless: bool) -> None:
        self._has_server_failed = is_blameless
        if is_blameless:
            self._pipe.send(ServerFailed())


class Desk:
    """What handlers in this process are given, made when it is first needed."""

    def __init__(self, url: str, pipe: Pipe, deadline: Any) -> None:
        self._url = url
        self._pipe = pipe
        self._deadline = deadline
        self._pool: Pool | None = None
        self._trace: AttemptTrace | None = None
        self._job: ChildJob | None = None

    @property
    def refusal(self) -> StaleLease | None:
        """What the database refused of the last job."""
        return None if self._job is None else self._job._refusal

    def leave(self, place: Place) -> None:
        """End the sessions with a server that the worker has left. From any thread."""
        if self._pool is not None:
            self._pool.distrust()
        if self._job is not None:
            self._job._cut_from(place)

    def trace(self, request: Request) -> None:
        """Go on with the trace of the attempt, before the handler's time begins."""
        self._trace = None
        if request.trace_context is not None and (spans := _traced_as(request)) is not None:
            self._trace = spans.continued(request.claim, request.trace_context)

    def pool(self) -> Pool:
        if self._pool is None:
            self._pool = make_pool(self._url, max_size=2, application_name=_NAME)
            self._pool.open()
        return self._pool

    def job(self, request: Request, task: Task[Any, Any], async_pool: AsyncPool | None) -> ChildJob:
        lease = MirroredLease(self._deadline, request.lease_seconds)
        job = ChildJob(request.claim, lease, self.pool, async_pool, self._pipe)
        job._trace = self._trace
        self._job = job
        job._prepare = task.prepare_transaction
        return job

    async def run_async(self, request: Request, task: Task[Any, Any]) -> tuple[ChildJob, Any]:
        pool = make_async_pool(self._url, max_size=2, application_name=_NAME)
        async with pool:
            job = self.job(request, task, pool)
            arguments = task.arguments(request.claim.payload_json)
            return job, await task.attempt_async(job, **arguments)

    def run(self, request: Request, task: Task[Any, Any]) -> tuple[ChildJob, Any]:
        if task.is_async:
            return asyncio.run(self.run_async(request, task))
        job = self.job(request, task, None)
        return job, task.attempt(job, **task.arguments(request.claim.payload_json))


def main(pipe: Pipe, left_servers: Pipe, deadline: Any, url: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    desk = Desk(url, pipe, deadline)
    threading.Thread(target=_leave_servers, args=(left_servers, desk), daemon=True).start()
    while True:
        try:
            request: Request = pipe.recv()
        except EOFError:
            flush()
            return
        desk.trace(request)
        pipe.send(Begun())
        pipe.send(_answer(request, desk))


@harmless
def _traced_as(request: Request) -> Spans | None:
    """As the application does, once it is loaded, else as the worker was told to by its environment."""
    importlib.import_module(request.module)
    set_up("worker")
    return tracing.look()


def _leave_servers(left_servers: Pipe, desk: Desk) -> None:
    """The handler may wait for a frozen server, so that its own thread cannot listen."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            desk.leave(left_servers.recv())


def _end_with_parent() -> None:
    """A handler must not go on when its worker is gone, nor keep anything of the worker's open."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _answer(request: Request, desk: Desk) -> Success | Failure:
    try:
        task = find_task(request.module, request.qualname)
        if task is None:
            name = f"{request.module}.{request.qualname}"
            return Failure("missing", f"a new process finds no task {name}")
        job, value = desk.run(request, task)
    except BaseException as error:
        return _failure(error, tame(error), desk.refusal)
    if (refusal := job._refusal) is not None:  # swallowed, but not forgotten
        return Failure(
            "stale", str(refusal), reason=refusal.reason, current_token=refusal.current_token
        )
    if job._not_committed is not None and job._phase is CommitPhase.UNCOMMITTED:
        return Failure("error", f"NotCommitted: {job._not_committed}")
    try:
        return Success(encode_json(value, what="the result"))
    except InvalidInput as error:
        return Failure("reject", str(error))


def _failure(raised: BaseException, error: Exception, refusal: StaleLease | None) -> Failure:
    """`error` is `raised`, if that can be inspected safely."""
    if (
        isinstance(error, StaleLease) and refusal is not None
    ):  # the database's, not one of the handler's own
        return Failure("stale", str(error), reason=error.reason, current_token=error.current_token)
    kind = "reject" if isinstance(error, Reject) else "error"
    if isinstance(error, DatabaseUnavailable):
        kind = "unavailable"
    trace = traceback_of(raised)[-8_000:]
    message = f"{name_of(raised)}: {text_of(raised)}"[:2_000]
    return Failure(
        kind,
        message,
        trace,
        sqlstate=getattr(error, "sqlstate", None),
        is_server_loss=is_server_loss(error),
    )


def find_task(module: str, qualname: str) -> Task[Any, Any] | None:
    """The task as this process imports it; None if the code on disk does not have it (any more)."""
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # another module is missing, which this one imports
        return None
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, Task) else None
