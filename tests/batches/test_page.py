"""The code of docs/batches.md runs, and does what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faultline.testing import run_until_idle
from tests.running import Connection

PAGE = Path(__file__).parents[2] / "docs" / "batches.md"


@pytest.fixture
def page(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    module: Any = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), vars(module))  # noqa: S102
    yield module
    module.app.close()


def test_the_readings_are_stored_in_batches(page: Any, conn: Connection) -> None:
    conn.execute("CREATE TABLE readings (sensor int, celsius float8)")
    page.store.enqueue_many([{"sensor": n, "celsius": n / 2} for n in range(150)])
    page.store.enqueue(sensor=150, celsius=75.0)
    run_until_idle(page.app)
    stored = conn.execute("SELECT sensor, celsius, xmin::text FROM readings ORDER BY 1").fetchall()
    assert [row[:2] for row in stored] == [(n, n / 2) for n in range(151)]
    assert len({transaction for _, _, transaction in stored}) == 2


def test_orders_without_an_address_end_as_the_page_says(page: Any, conn: Connection) -> None:
    conn.execute("CREATE TABLE parcels (address text)")
    addresses = ["Berlin", "", "unknown", "Paris"]
    page.ship.enqueue_many([{"address": address} for address in addresses])
    run_until_idle(page.app, raise_errors=False)
    ended = conn.execute(
        "SELECT payload ->> 'address', state, failed_reason FROM faultline.jobs ORDER BY id"
    ).fetchall()
    assert ended == [
        ("Berlin", "succeeded", None),
        ("", "failed", "rejected"),
        ("unknown", "queued", None),
        ("Paris", "succeeded", None),
    ]
    assert {row for (row,) in conn.execute("SELECT address FROM parcels")} == {"Berlin", "Paris"}
