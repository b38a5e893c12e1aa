"""A visit: one request under way, with what it may do and until when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar, assert_never

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from faultline.api.keyring import Keyring
from faultline.api.pulse import Pulse
from faultline.api.rates import Rates
from faultline.api.refusals import Refusal, refusal_of
from faultline.api.refused_access import UNKNOWN_KEY, RefusedAccess, RefusedAccesses
from faultline.api.sessions import Sessions
from faultline.api.settings import ApiSettings, is_loopback
from faultline.api.throttle import Throttle
from faultline.app import Faultline
from faultline.errors import DatabaseRefused
from faultline.serving.client import presented_key
from faultline.statements import audit
from faultline.statements.audit import Actor
from faultline.statements.keys import Scope, StoredKey, prefix_of
from faultline.statements.statement import Statement

T = TypeVar("T")

_OPERATOR_ACTION = re.compile(r"/(?P<kind>job|queue)s/\{\w+\}/(?P<action>\w+)\Z")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::\d{1,5})?\Z")


class Access(StrEnum):
    """What it takes to be let in."""

    OPEN = "open"
    ANY_KEY = "any key"
    ENQUEUE = Scope.ENQUEUE.value
    READ = Scope.READ.value
    OPERATE = Scope.OPERATE.value
    METRICS = "metrics"  # read, unless the operator opened them


@dataclass(slots=True)
class Service:
    """What all visits share."""

    settings: ApiSettings
    pulse: Pulse
    sessions: Sessions
    keyring: Keyring
    rates: Rates
    throttle: Throttle
    refused: RefusedAccesses
    app: Faultline | None = None  # without one, any task's name is taken


@dataclass(slots=True)
class Visit:
    service: Service
    deadline: float
    address: str  # of the client
    key: StoredKey | None = None  # whose request it is, once that is known
    is_noted: bool = False  # the audit log gets a row for the refusal of this request

    @property
    def settings(self) -> ApiSettings:
        return self.service.settings

    async def run(self, statement: Statement[T]) -> T:
        return await self.service.sessions.run(statement, deadline=self.deadline)

    async def run_together(self, statements: Sequence[Statement[Any]]) -> list[Any]:
        return await self.service.sessions.run_together(statements, deadline=self.deadline)

    async def admit(self, request: Request, access: Access) -> None:
        """Before the body is read: nobody without a key can make us hold one."""
        if access is Access.OPEN or (access is Access.METRICS and self.settings.open_metrics):
            return
        if not self.settings.require_keys:
            require_from_here(request)
            self._take_turn("whoever is on this machine")
            return
        presented = presented_key(request.headers)
        try:
            key = self.key = await self.service.keyring.identify(
                presented, self.run, throttle=self.service.throttle, address=self.address
            )
        except Refusal as refusal:
            if presented is not None and refusal.status_code in (401, 429):
                self._note_refused(request, _unknown(presented), refusal.code)
            raise
        self._take_turn(key.id)
        needed = _scope_for(access)
        if needed is not None and needed not in key.scopes:
            self._note_refused(request, self._name, "forbidden", kind="key")
            raise Refusal(
                403,
                "forbidden",
                f"this key may {', '.join(sorted(key.scopes))}; this needs {needed}",
                f"faultline keys create NAME --scope {needed}",
                {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed}"'},
            )

    async def operate(self, statement: Statement[T]) -> T:
        """Run an operator's action, which the audit log records under the name of the key."""
        return await self.run(audit.by(Actor("key", self._name, self.address), statement))

    def note_refused_action(self, request: Request, error: Exception) -> None:
        """Have the audit log record that an operator's action was refused, if that is what happened.

        The row that the action itself wrote is rolled back with it. A request without a key is none of
        an operator's, and an outage is no refusal.
        """
        is_known = self.key is not None or not self.settings.require_keys
        refusal = refusal_of(error)
        was_refused = refusal.status_code < 500 or refusal.code == DatabaseRefused.code
        if is_known and was_refused and not self.is_noted:
            self._note_refused(request, self._name, refusal.code, kind="key")

    @property
    def _name(self) -> str:
        return "without keys" if self.key is None else self.key.shown

    def _note_refused(
        self, request: Request, name: str, code: str, *, kind: str = UNKNOWN_KEY
    ) -> None:
        self.is_noted = True
        action, target = _action_of(request)
        refused = RefusedAccess(Actor(kind, name, self.address), action, code, target)
        self.service.refused.note(refused)

    def _take_turn(self, whose: object) -> None:
        if wait_seconds := self.service.rates.take(whose):
            raise Refusal(
                429,
                "rate_limited",
                f"more than {self.settings.requests_per_second:g} requests a second",
                "wait for as long as Retry-After says, or send jobs in batches",
                {"Retry-After": str(wait_seconds)},
            )


def _action_of(request: Request) -> tuple[str, str | None]:
    """What was asked for, and of what: an operator's action in the words of the audit log."""
    route = request.scope.get("route")
    path = route.path_format if isinstance(route, APIRoute) else "/"
    if request.method == "POST" and (found := _OPERATOR_ACTION.match(path)):
        [value] = request.path_params.values() or [None]
        return found["action"], f"{found['kind']} {value}"
    return f"{request.method} {path}", None


def _unknown(presented: str) -> str:
    """The part of it that may be shown, if it looks like a key."""
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


def require_from_here(request: Request) -> None:
    """Without keys, a web page in a browser on this machine could send what it likes: from another
    origin, or by a name of its own that leads to this address. A program does neither."""
    host = request.headers.get("host", "")
    named = _HOST.match(host)
    is_same_origin = request.headers.get("origin", f"http://{host}") == f"http://{host}"
    if named is None or not is_loopback(named[1]) or not is_same_origin:
        raise Refusal(
            403,
            "foreign_origin",
            "without keys this API answers only programs on this machine, by its loopback name",
            "make a key: faultline keys create NAME --scope enqueue",
        )


def current_visit(request: Request) -> Visit:
    visit: Visit = request.state.visit
    return visit


CurrentVisit = Annotated[Visit, Depends(current_visit)]
