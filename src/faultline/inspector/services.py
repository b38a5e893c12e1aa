"""The objects that the inspector's endpoints share, as a FastAPI dependency."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from faultline.inspector.broadcast import Broadcast
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.inspector.overview import Snapshots
from faultline.inspector.reader import Reader
from faultline.inspector.responses import ErrorRedaction
from faultline.inspector.security_middleware import CsrfTokens
from faultline.serving.host_access import Caller

CONCURRENT_SEARCHES = 2


class SendAction(Protocol):
    """Sends an action to the API as this caller; returns its status and JSON."""

    async def __call__(
        self, method: str, path: str, caller: Caller, body: bytes | None, *, address: str
    ) -> tuple[int, bytes]: ...


@dataclass(frozen=True, slots=True)
class InspectorServices:
    settings: InspectorSettings
    reader: Reader
    snapshots: Snapshots
    broadcast: Broadcast
    tokens: CsrfTokens
    redaction: ErrorRedaction
    searching: asyncio.Semaphore  # a search may take seconds: it must not occupy every session
    send_action: SendAction | None = None  # to an API in this process, for a mounted inspector

    @property
    def has_actions(self) -> bool:
        return self.send_action is not None or self.settings.api_url is not None

    async def close(self) -> None:
        await self.broadcast.close()
        await self.reader.close()


def make_services(
    settings: InspectorSettings, send_action: SendAction | None = None
) -> InspectorServices:
    reader = Reader(settings.database_url)
    redaction = ErrorRedaction(hides_details=settings.hides_details)
    snapshots = Snapshots(reader)
    broadcast = Broadcast(
        snapshots,
        max_listeners=settings.max_streams,
        max_from_address=settings.streams_per_address,
        redaction=redaction,
    )
    return InspectorServices(
        settings,
        reader,
        snapshots,
        broadcast,
        CsrfTokens(),
        redaction,
        asyncio.Semaphore(CONCURRENT_SEARCHES),
        send_action,
    )


def _services(request: Request) -> InspectorServices:
    services = request.app.state.services
    assert isinstance(services, InspectorServices)  # noqa: S101 - set by make_app
    return services


Shared = Annotated[InspectorServices, Depends(_services)]
