"""All of compose.yaml as processes: its commands, ports, order and health checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers import database, stack_check
from tests.containers.composition import services
from tests.containers.engine import Engine


@pytest.mark.slow
def test_the_stack_starts_works_is_scraped_and_stops_in_order(tmp_path: Path) -> None:
    with database.serving(services()["postgres"]) as server:
        engine = Engine(tmp_path, server)
        try:
            stack_check.run(engine, server)
        finally:
            engine.down()
