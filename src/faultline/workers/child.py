"""The code of a child process: runs handlers and reports how each ended.

A child has its own connection. It commits under the token of the claim, so PostgreSQL refuses a child that
outlives its worker's lease like any stale worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import (
    DatabaseUnavailable,
    InvalidInput,
    NotCommitted,
    Reject,
    StaleLease,
)
from faultline.events import LogSettings, log
from faultline.handler_errors import make_safe, name_of, text_of, traceback_of
from faultline.hooks import Hooks
from faultline.job import Job
from faultline.logs import annotate_records, set_current_job, use_event_log
from faultline.model import Claim, CommitPhase
from faultline.postgres.errors import is_serialization_conflict, is_server_loss
from faultline.postgres.sessions import AsyncPool, Pool, ServerAddress, make_async_pool, make_pool
from faultline.results import discarded, encode_result, result_of
from faultline.retry_control import Retry, Snooze
from faultline.retry_policy import RetryDecision, decide_safely, request_of
from faultline.sentry import sentry
from faultline.steady import steady_now
from faultline.task import Task
from faultline.tracing import tracing
from faultline.tracing.activation import suppress_errors
from faultline.tracing.export import flush, set_up
from faultline.workers.child_progress import ChildProgress, Pipe, SharedPipe

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace
    from faultline.tracing.spans import Spans

_NAME = "faultline handler"


@dataclass(frozen=True, slots=True)
class Request:
    module: str
    qualname: str
    claim: Claim
    lease_seconds: float
    trace_context: str | None  # of the attempt, if the worker traces it


@dataclass(frozen=True, slots=True)
class Begun:
    """The child has read the request, and the handler begins."""


@dataclass(frozen=True, slots=True)
class ServerFailed:
    """The server froze or was demoted during the attempt, so no attempt is charged."""


@dataclass(frozen=True, slots=True)
class Success:
    result: str | None  # JSON text, unless the handler has committed the job
    discarded: str | None  # describes a value that is not stored as the result


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as plain values, because not every exception can be pickled."""

    kind: str  # stale, missing, reject, snooze, retry, unavailable or error
    message: str
    trace: str = ""
    sqlstate: str | None = None
    reason: str = ""
    current_token: int | None = None
    is_server_loss: bool = False
    is_captured: bool = False  # sent to Sentry
    decision: RetryDecision | None = None  # by the task's policy, which needs the exception
    request: tuple[float | None, datetime | None, str | None] = (0.0, None, None)  # of both kinds

    @property
    def is_final(self) -> bool:
        """Whether the job fails for good, however many attempts are left."""
        return self.kind == "reject" or (self.decision is not None and self.decision.gives_up)


class SharedMemoryLease:
    """The deadline of the worker's lease, in shared memory; 0 when the lease is lost."""

    def __init__(self, deadline: Any, lease_seconds: float) -> None:
        self._deadline = deadline
        self.lease_seconds = lease_seconds

    @property
    def is_lost(self) -> bool:
        return bool(self._deadline.value == 0)

    def remaining_seconds(self) -> float:
        return 0.0 if self.is_lost else float(self._deadline.value) - steady_now()


class ReportingTransactions(AttemptTransactions):
    """Reports each phase to the worker before entering it.

    If the child dies, the worker knows from the phase whether a commit may have happened.
    """

    def __init__(
        self, claim: Claim, lease: SharedMemoryLease, trace: AttemptTrace | None, pipe: SharedPipe
    ) -> None:
        super().__init__(claim, lease, trace)
        self._pipe = pipe

    @property
    def phase(self) -> CommitPhase:
        return self._phase

    @phase.setter
    def phase(self, phase: CommitPhase) -> None:
        self._phase = phase
        if phase is not CommitPhase.UNCOMMITTED:
            self._pipe.send(phase)

    @property
    def server_failed(self) -> bool:
        return self._server_failed

    @server_failed.setter
    def server_failed(self, server_failed: bool) -> None:
        self._server_failed = server_failed
        if server_failed:
            self._pipe.send(ServerFailed())


class ChildResources:
    """The pool, event loop, trace and job of this process, made when first needed."""

    def __init__(self, url: str, pipe: SharedPipe, deadline: Any) -> None:
        self._url = url
        self._pipe = pipe
        self._deadline = deadline
        self._pool: Pool | None = None
        self._runner = asyncio.Runner()  # one loop for async handlers and for startup functions
        self._hooks: Hooks | None = None
        self._started = 0  # how many startup functions have ended
        self._trace: AttemptTrace | None = None
        self._transactions: AttemptTransactions | None = None  # of the last job
        self._job: Job | None = None  # the last one
        self.progress = ChildProgress(pipe)  # of the last job

    @property
    def refusal(self) -> StaleLease | None:
        """The refusal of the last job, if PostgreSQL refused it."""
        return None if self._transactions is None else self._transactions.refusal

    @property
    def not_committed(self) -> NotCommitted | None:
        """The error of the last job, if its transaction ended without committing it."""
        last = self._transactions
        if last is None or last.phase is not CommitPhase.UNCOMMITTED:
            return None
        return last.not_committed

    def leave(self, server: ServerAddress) -> None:
        """Close the connections to a server that the worker has left. From any thread."""
        if self._pool is not None:
            self._pool.distrust()
        if self._transactions is not None:
            self._transactions.sever_from(server)

    def trace(self, request: Request) -> None:
        """Continue the trace of the attempt, before the handler begins."""
        self._trace = None
        if request.trace_context is not None and (spans := _traced_as(request)) is not None:
            self._trace = spans.continued(request.claim, request.trace_context)

    def start_up(self, hooks: Hooks) -> None:
        """Run the startup functions that have not run in this process yet."""
        self._hooks = hooks
        while self._started < len(hooks.startup):
            self._runner.run(hooks.start(self._started))
            self._started += 1

    def shut_down(self) -> None:
        if self._hooks is not None:
            self._runner.run(self._hooks.stop())
        self._runner.close()

    def pool(self) -> Pool:
        if self._pool is None:
            self._pool = make_pool(self._url, max_size=2, application_name=_NAME)
            self._pool.open()
        return self._pool

    def job(self, request: Request, task: Task[Any, Any], async_pool: AsyncPool | None) -> Job:
        claim, lease = request.claim, SharedMemoryLease(self._deadline, request.lease_seconds)
        self._transactions = ReportingTransactions(claim, lease, self._trace, self._pipe)
        self.progress = ChildProgress(self._pipe)
        self._job = Job(
            claim,
            lease,
            self.pool,
            async_pool,
            transactions=self._transactions,
            prepare=task.prepare_transaction,
            report=self.progress.report,
            session_makers=task.app.session_makers,
        )
        return self._job

    def success(self, returned: Any) -> Success:
        """The result of the last job; InvalidInput if it cannot be stored."""
        own = None if self._job is None else self._job.result
        last = self._transactions
        if last is not None and last.phase is not CommitPhase.UNCOMMITTED:
            return Success(None, discarded(last.stored_result, own=own, returned=returned))
        text = encode_result(result_of(own, returned))
        return Success(text, discarded(text, own=own, returned=returned))

    async def run_async(self, request: Request, task: Task[Any, Any]) -> Any:
        pool = make_async_pool(self._url, max_size=2, application_name=_NAME)
        async with pool:
            job = self.job(request, task, pool)
            set_current_job(job)
            arguments = task.arguments(request.claim.payload_json)
            return await task.attempt_async(job, **arguments)

    def run(self, request: Request, task: Task[Any, Any]) -> Any:
        if task.is_async:
            context = contextvars.copy_context()
            return self._runner.run(self.run_async(request, task), context=context)
        job = self.job(request, task, None)
        set_current_job(job)
        return task.attempt(job, **task.arguments(request.claim.payload_json))


def main(
    worker: Pipe,
    left_servers: Pipe,
    deadline: Any,
    url: str,
    logging: LogSettings | None,
    imports: Sequence[str],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe = SharedPipe(worker)
    resources = ChildResources(url, pipe, deadline)
    threading.Thread(target=_leave_servers, args=(left_servers, resources), daemon=True).start()
    if logging is not None:
        log.open(style=logging.style, verbose=logging.verbose)
    annotate_records()
    problem = _import_first(imports)
    while True:
        try:
            request: Request = pipe.recv()
        except EOFError:
            resources.shut_down()
            flush()
            return
        if problem is None:
            resources.trace(request)
        found = problem or _prepare(request, resources)
        pipe.send(Begun())
        # In a copy of the context, so that context variables of one job do not reach the next.
        answer = contextvars.copy_context().run(_answer, request, resources, found)
        resources.progress.end()
        pipe.send(answer)


def _import_first(modules: Sequence[str]) -> Failure | None:
    """Import what the modules of handlers need; an error fails every attempt here."""
    try:
        for name in modules:
            importlib.import_module(name)
    except BaseException as error:
        return _failure(error, make_safe(error), None)
    return None


@suppress_errors
def _traced_as(request: Request) -> Spans | None:
    """Set up tracing as the application does, or else as the environment says."""
    importlib.import_module(request.module)
    set_up("worker")
    return tracing.find()


def _leave_servers(left_servers: Pipe, resources: ChildResources) -> None:
    """Listen in a thread of its own: the handler may be waiting for a frozen server."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            resources.leave(left_servers.recv())


def _end_with_parent() -> None:
    """End this process when the worker's process ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _prepare(request: Request, resources: ChildResources) -> Task[Any, Any] | Failure:
    """Import the task and start its app, before the handler's timeout begins."""
    try:
        task = find_task(request.module, request.qualname)
        if task is None:
            name = f"{request.module}.{request.qualname}"
            return Failure("missing", f"a new process finds no task {name}")
        use_event_log()
        if task.hooks is not None:
            resources.start_up(task.hooks)
        sentry.find()
        return task
    except BaseException as error:
        return _failure(error, make_safe(error), None)


def _answer(
    request: Request, resources: ChildResources, found: Task[Any, Any] | Failure
) -> Success | Failure:
    if isinstance(found, Failure):
        return found
    if not sentry.is_on:
        return _run(request, resources, found)
    with sentry.scope(request.claim):
        return _run(request, resources, found)


def _run(request: Request, resources: ChildResources, task: Task[Any, Any]) -> Success | Failure:
    try:
        value = resources.run(request, task)
    except BaseException as error:
        safe = make_safe(error)
        failure = _failure(error, safe, resources.refusal)
        if failure.kind not in ("stale", "snooze"):
            decision = decide_safely(task.settings.retry, request_of(safe), request.claim.attempt)
            failure = replace(failure, decision=decision)
        return _captured(request.claim, failure, safe) if sentry.is_on else failure
    if (refusal := resources.refusal) is not None:  # the handler swallowed it
        return Failure(
            "stale", str(refusal), reason=refusal.reason, current_token=refusal.current_token
        )
    if (lost := resources.not_committed) is not None:
        return Failure("error", f"NotCommitted: {lost}")
    try:
        return resources.success(value)
    except InvalidInput as error:
        return Failure("reject", str(error))


def _failure(raised: BaseException, error: Exception, refusal: StaleLease | None) -> Failure:
    """Describe an exception. `error` equals `raised` if that can be inspected safely."""
    # Without a refusal of the database the handler's own code raised the StaleLease.
    if isinstance(error, StaleLease) and refusal is not None:
        return Failure("stale", str(error), reason=error.reason, current_token=error.current_token)
    asked = request_of(error)
    kind = "reject" if isinstance(asked, Reject) else "error"
    if isinstance(asked, Snooze):
        return Failure("snooze", str(asked), request=(asked.seconds, asked.until, asked.reason))
    if isinstance(error, DatabaseUnavailable):
        kind = "unavailable"
    trace = traceback_of(raised)[-8_000:]
    message = f"{name_of(raised)}: {text_of(raised)}"[:2_000]
    if isinstance(asked, Retry):
        return Failure("retry", message, trace, request=(asked.after, None, asked.reason))
    return Failure(
        kind,
        message,
        trace,
        sqlstate=getattr(error, "sqlstate", None),
        is_server_loss=is_server_loss(error),
    )


def _captured(claim: Claim, failure: Failure, error: Exception) -> Failure:
    """Send an error that fails the attempt to Sentry, from here: it has its frames."""
    if (
        failure.kind not in ("error", "reject", "retry")
        or failure.is_server_loss
        or is_serialization_conflict(error)
    ):
        return failure  # the worker decides what it means
    is_final = failure.is_final or claim.attempt >= claim.max_attempts
    sentry.capture(claim, error, is_final=is_final)
    sentry.flush()  # the worker may kill this process when it is idle
    return replace(failure, is_captured=True)


def find_task(module: str, qualname: str) -> Task[Any, Any] | None:
    """Import a task; None if the code on disk does not have it (any more)."""
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # another module is missing, one that the task's module imports
        return None
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, Task) else None
