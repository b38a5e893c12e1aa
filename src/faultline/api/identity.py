"""The endpoint that says which key a client uses, so that it can be checked before it is needed."""

from __future__ import annotations

from fastapi import APIRouter, Response

from faultline.api.document import refusals
from faultline.api.models import KeyAnswer
from faultline.api.refusals import answer
from faultline.api.route import GuardedRoute, needs
from faultline.api.visit import Access, CurrentVisit
from faultline.statements.keys import Scope

router = APIRouter(route_class=GuardedRoute, tags=["keys"])


@router.get(
    "/key",
    summary="The key of this request",
    response_model=None,
    responses={200: {"model": KeyAnswer}, **refusals()},
    openapi_extra=needs(Access.ANY_KEY),
)
async def get_key(visit: CurrentVisit) -> Response:
    """Its name and its scopes. A server without keys answers with no name and every scope."""
    key = visit.key
    scopes = sorted(Scope) if key is None else sorted(key.scopes)
    return answer({"name": None if key is None else key.name, "scopes": scopes})
