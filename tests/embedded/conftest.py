"""A place that servers can live in, and a server in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultline import embedded


@pytest.fixture
def home() -> Iterator[Path]:
    """Like tmp_path, but open to `nobody`, whom servers run as when the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="faultline-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def server(home: Path) -> Iterator[embedded.Server]:
    server = embedded.Server(home / "data")
    yield server
    server.stop(mode="immediate")
