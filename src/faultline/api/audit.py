"""The endpoint about the audit log: what operators did, and which keys were refused."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from faultline.api.document import refusals
from faultline.api.models import AuditPage
from faultline.api.refusals import answer
from faultline.api.route import GuardedRoute, needs
from faultline.api.visit import Access, CurrentVisit
from faultline.errors import InvalidInput
from faultline.statements import audit
from faultline.statements.audit import AuditFilter

MOST = 1000

router = APIRouter(route_class=GuardedRoute, tags=["audit"])
Text = Annotated[str | None, Field(max_length=300)]


class Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    actor: Text = Field(None, description="Only entries of this actor.")
    action: Text = Field(None, description="Only this action.")
    object: Text = Field(None, description="Only this object, such as `queue mail`.")
    result: Text = Field(None, description="done, unchanged or refused.")
    address: Text = Field(None, description="Only what came from this address.")
    limit: int = Field(50, ge=1, le=MOST, description="At most so many.")
    before: int | None = Field(None, ge=0, lt=2**63, description="`next` of the page before.")


@router.get(
    "/audit",
    summary="What operators did, newest first",
    response_model=None,
    responses={200: {"model": AuditPage}, **refusals(422)},
    openapi_extra=needs(Access.OPERATE),
)
async def list_audit(wanted: Annotated[Wanted, Query()], visit: CurrentVisit) -> Response:
    """Also which keys were refused. A page with a filter looks at a bounded number of entries."""
    if any("\0" in str(value) for value in wanted.model_dump().values()):
        raise InvalidInput("a filter contains a NUL character, which no entry has")
    chosen = AuditFilter(wanted.actor, wanted.action, wanted.object, wanted.result, wanted.address)
    return answer(await visit.run(audit.page(chosen, limit=wanted.limit, before=wanted.before)))
