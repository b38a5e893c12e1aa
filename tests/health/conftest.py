"""The fixtures of the process tests, and the probe in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from faultline.cli.health import health
from tests.processes.conftest import database, fleet, own_server  # noqa: F401 - fixtures


class Answer(NamedTuple):
    code: int
    line: str


def probe(*words: str) -> Answer:
    done = CliRunner().invoke(health, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.output.count("\n") == 1, done.output
    return Answer(done.exit_code, done.output.strip())


Probe = Callable[..., Answer]


@pytest.fixture
def health_file(tmp_path: Path) -> Path:
    return tmp_path / "health"


@pytest.fixture
def worker_probe(health_file: Path) -> Probe:
    return lambda *options: probe("worker", "--health-file", str(health_file), *options)
