"""The context of one request: deadline, client, key, and access checks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar, assert_never
from uuid import UUID

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from faultline.api.api_errors import ApiError, api_error_of
from faultline.api.api_settings import ApiSettings
from faultline.api.authentication import KeyAuthenticator
from faultline.api.database_check import DatabaseCheck
from faultline.api.rate_limits import RateLimiter, WrongKeyLimiter
from faultline.api.refused_access import UNKNOWN_KEY, RefusedAccess, RefusedAccessLog
from faultline.api.session_pool import SessionPool
from faultline.app import Faultline
from faultline.errors import DatabaseRefused
from faultline.result_waiters import JobWatcher
from faultline.serving.client import presented_key
from faultline.serving.host_access import Caller, caller_of
from faultline.serving.limits import is_loopback
from faultline.statements import audit
from faultline.statements.audit import Actor
from faultline.statements.keys import Scope, StoredKey, prefix_of
from faultline.statements.statement import Statement

T = TypeVar("T")

_ACTION_PATH = re.compile(r"/(?P<kind>job|queue|schedule)s/\{\w+\}/(?P<action>\w+)\Z")
_MANY_PATH = re.compile(r"/jobs/(?P<action>retry|cancel|delete|edit)\Z")
_SCHEDULE_PATHS = {("POST", "/schedules"): "add", ("DELETE", "/schedules/{schedule}"): "remove"}
_ACTION_METHODS = {"DELETE": "delete", "PATCH": "edit"}
_LIMIT_METHODS = {
    ("PUT", "/limits/{name}"): "set limit",
    ("DELETE", "/limits/{name}"): "reset limit",
}
_USER = "user"  # of the host application, as the audit log says
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::\d{1,5})?\Z")


class Access(StrEnum):
    """What a request needs to use an endpoint."""

    OPEN = "open"
    ANY_KEY = "any key"
    ENQUEUE = Scope.ENQUEUE.value
    READ = Scope.READ.value
    OPERATE = Scope.OPERATE.value
    METRICS = "metrics"  # the scope read, or nothing with --open-metrics


@dataclass(slots=True)
class ApiServices:
    """The objects that all requests share."""

    settings: ApiSettings
    database: DatabaseCheck
    sessions: SessionPool
    authenticator: KeyAuthenticator
    key_rates: RateLimiter
    wrong_keys: WrongKeyLimiter
    refused: RefusedAccessLog
    watcher: JobWatcher
    wait_slots: asyncio.Semaphore  # of requests that wait for the end of a job
    app: Faultline | None = None  # None: any task name is accepted
    trusts_host: bool = False  # a host application names the callers; no keys


@dataclass(slots=True)
class RequestContext:
    services: ApiServices
    deadline: float
    address: str  # of the client
    key: StoredKey | None = None  # set by `authorize`
    caller: Caller | None = None  # likewise, if a host application names the callers
    is_noted: bool = False  # the audit log records the refusal of this request

    @property
    def settings(self) -> ApiSettings:
        return self.services.settings

    async def run(self, statement: Statement[T]) -> T:
        return await self.services.sessions.run(statement, deadline=self.deadline)

    async def wait_for_end(self, job_id: UUID, seconds: float) -> None:
        """Wait for the end of a job; returns at once if many requests wait already.

        The time of the request starts again afterwards.
        """
        slots = self.services.wait_slots
        if not slots.locked():
            async with slots:
                longest = self.settings.wait_seconds
                await self.services.watcher.wait_async(job_id, min(seconds, longest))
        self.deadline = time.monotonic() + self.settings.request_seconds

    async def run_together(self, statements: Sequence[Statement[Any]]) -> list[Any]:
        return await self.services.sessions.run_together(statements, deadline=self.deadline)

    async def authorize(self, request: Request, access: Access) -> None:
        """Called before the body is read: clients without a key cannot fill our memory."""
        if access is Access.OPEN or (access is Access.METRICS and self.settings.open_metrics):
            return
        if self.services.trusts_host:
            self._authorize_caller(request, access)
            return
        if not self.settings.require_keys:
            _require_local_client(request)
            self._take_token("clients on this machine")
            return
        presented = presented_key(request.headers)
        try:
            key = self.key = await self.services.authenticator.authenticate(
                presented, self.run, wrong_keys=self.services.wrong_keys, address=self.address
            )
        except ApiError as refusal:
            if presented is not None and refusal.status_code in (401, 429):
                self._note_refused(request, _unknown(presented), refusal.code)
            raise
        self._take_token(key.id)
        needed = _scope_for(access)
        if needed is not None and needed not in key.scopes:
            self._note_refused(request, self._name, "forbidden", kind="key")
            raise ApiError(
                403,
                "forbidden",
                f"this key may {', '.join(sorted(key.scopes))}; this needs {needed}",
                f"faultline keys create NAME --scope {needed}",
                {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed}"'},
            )

    def _authorize_caller(self, request: Request, access: Access) -> None:
        """Check the scopes that the host application has given to its user."""
        caller = self.caller = caller_of(request.scope)
        if caller is None:
            raise ApiError(
                401, "unauthenticated", "the application that mounts this API named no caller"
            )
        self._take_token(caller.name)
        needed = _scope_for(access)
        if needed is not None and not caller.may(needed):
            self._note_refused(request, caller.name, "forbidden", kind=_USER)
            raise ApiError(403, "forbidden", f"this user lacks the scope {needed.value}")

    async def operate(self, statement: Statement[T]) -> T:
        """Run an operator's action; the audit log records it under the name of the key."""
        return await self.run(audit.by(Actor(self._kind, self._name, self.address), statement))

    def note_refused_action(self, request: Request, error: Exception) -> None:
        """Record in the audit log that an operator's action was refused.

        The row that the action itself wrote was rolled back with it. Requests without a key and outages are
        not recorded.
        """
        is_known = bool(self.key or self.caller) or not self.settings.require_keys
        refusal = api_error_of(error)
        was_refused = refusal.status_code < 500 or refusal.code == DatabaseRefused.code
        if is_known and was_refused and not self.is_noted:
            self._note_refused(request, self._name, refusal.code, kind=self._kind)

    @property
    def _kind(self) -> str:
        return "key" if self.caller is None else _USER

    @property
    def _name(self) -> str:
        if self.caller is not None:
            return self.caller.name
        return "without keys" if self.key is None else self.key.shown

    def _note_refused(
        self, request: Request, name: str, code: str, *, kind: str = UNKNOWN_KEY
    ) -> None:
        self.is_noted = True
        action, target = _action_of(request)
        refused = RefusedAccess(Actor(kind, name, self.address), action, code, target)
        self.services.refused.note(refused)

    def _take_token(self, name: object) -> None:
        if wait_seconds := self.services.key_rates.take(name):
            raise ApiError(
                429,
                "rate_limited",
                f"more than {self.settings.requests_per_second:g} requests a second",
                "wait as long as Retry-After says, or send jobs in batches",
                {"Retry-After": str(wait_seconds)},
            )


def _action_of(request: Request) -> tuple[str, str | None]:
    """The action and its object, as the audit log names them."""
    route = request.scope.get("route")
    path = route.path_format if isinstance(route, APIRoute) else "/"
    if request.method == "POST" and (found := _ACTION_PATH.match(path)):
        [value] = request.path_params.values() or [None]
        return found["action"], f"{found['kind']} {value}"
    if request.method == "POST" and (found := _MANY_PATH.match(path)):
        return found["action"], "jobs"
    if action := _SCHEDULE_PATHS.get((request.method, path)):
        return action, " ".join(["schedule", *map(str, request.path_params.values())])
    if action := _LIMIT_METHODS.get((request.method, path)):
        [value] = request.path_params.values() or [None]
        return action, f"limit {value}"
    if action := _ACTION_METHODS.get(request.method):
        [value] = request.path_params.values() or [None]
        return action, f"job {value}"
    return f"{request.method} {path}", None


def _unknown(presented: str) -> str:
    """The public part of the presented key, if it has the form of a key."""
    prefix = prefix_of(presented)
    return "no key of this API" if prefix is None else f"flk_{prefix}"


def _scope_for(access: Access) -> Scope | None:
    match access:
        case Access.OPEN | Access.ANY_KEY:
            return None
        case Access.READ | Access.METRICS:
            return Scope.READ
        case Access.ENQUEUE:
            return Scope.ENQUEUE
        case Access.OPERATE:
            return Scope.OPERATE
    assert_never(access)


def _require_local_client(request: Request) -> None:
    """Without keys, refuse web pages in a browser on this machine.

    Such a page sends a foreign Origin, or uses a host name of its own that resolves to this address.
    """
    host = request.headers.get("host", "")
    named = _HOST.match(host)
    is_same_origin = request.headers.get("origin", f"http://{host}") == f"http://{host}"
    if named is None or not is_loopback(named[1]) or not is_same_origin:
        raise ApiError(
            403,
            "foreign_origin",
            "without keys this API serves only programs on this machine, by its loopback name",
            "make a key: faultline keys create NAME --scope enqueue",
        )


def current_context(request: Request) -> RequestContext:
    context: RequestContext = request.state.context
    return context


CurrentContext = Annotated[RequestContext, Depends(current_context)]
