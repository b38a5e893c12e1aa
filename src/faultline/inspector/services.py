"""What the endpoints share: the way to the database, the latest look, the open streams, the settings."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from faultline.inspector.broadcast import Broadcast
from faultline.inspector.csrf import Tokens
from faultline.inspector.discretion import Discretion
from faultline.inspector.reader import Reader
from faultline.inspector.settings import InspectorSettings
from faultline.inspector.snapshots import Snapshots

SEARCHES_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Services:
    settings: InspectorSettings
    reader: Reader
    snapshots: Snapshots
    broadcast: Broadcast
    tokens: Tokens
    discretion: Discretion
    searching: asyncio.Semaphore  # a search may take seconds: it leaves sessions to others


def make_services(settings: InspectorSettings) -> Services:
    reader = Reader(settings.database_url)
    discretion = Discretion(is_discreet=settings.is_discreet)
    snapshots = Snapshots(reader)
    broadcast = Broadcast(
        snapshots,
        max_listeners=settings.max_streams,
        max_from_address=settings.streams_per_address,
        discretion=discretion,
    )
    return Services(
        settings,
        reader,
        snapshots,
        broadcast,
        Tokens(),
        discretion,
        asyncio.Semaphore(SEARCHES_AT_ONCE),
    )


def _services(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)  # noqa: S101 - put there when the application is made
    return services


Shared = Annotated[Services, Depends(_services)]
