"""The objects that the inspector's endpoints share, as a FastAPI dependency."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from faultline.inspector.broadcast import Broadcast
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.inspector.overview import Snapshots
from faultline.inspector.reader import Reader
from faultline.inspector.responses import ErrorRedaction
from faultline.inspector.security_middleware import CsrfTokens

CONCURRENT_SEARCHES = 2


@dataclass(frozen=True, slots=True)
class InspectorServices:
    settings: InspectorSettings
    reader: Reader
    snapshots: Snapshots
    broadcast: Broadcast
    tokens: CsrfTokens
    redaction: ErrorRedaction
    searching: asyncio.Semaphore  # a search may take seconds: it must not occupy every session


def make_services(settings: InspectorSettings) -> InspectorServices:
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
    )


def _services(request: Request) -> InspectorServices:
    services = request.app.state.services
    assert isinstance(services, InspectorServices)  # noqa: S101 - set by make_app
    return services


Shared = Annotated[InspectorServices, Depends(_services)]
