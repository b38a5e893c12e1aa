"""A place that servers can live in, and a server in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faultline import embedded


@pytest.fixture
def server(home: Path) -> Iterator[embedded.Server]:
    server = embedded.Server(home / "data")
    yield server
    server.stop(mode="immediate")
