"""The fixture of a stopped server in a temporary directory."""

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
