"""The code of docs/retries.md runs, and does what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faultline.testing import Attempted, run_one

PAGE = Path(__file__).parents[2] / "docs" / "retries.md"


@pytest.fixture
def page(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    module: Any = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), vars(module))  # noqa: S102
    yield module
    module.app.close()


@pytest.mark.parametrize(
    ("card", "outcome", "wait_seconds"),
    [
        ("4242", "succeeded", None),
        ("closed", "snoozed", 600),
        ("busy", "retrying", 60),
        ("slow down", "retrying", 30),
        ("expired", "failed", None),
    ],
)
def test_each_card_ends_as_the_page_says(
    page: Any, conn: Any, card: str, outcome: str, wait_seconds: int | None
) -> None:
    page.charge.enqueue(card)
    attempted: Attempted | None = run_one(page.app, raise_errors=False)
    assert attempted is not None
    assert attempted.outcome == outcome
    query = "SELECT failed_reason, extract(epoch FROM next_run_at - clock_timestamp()) FROM faultline.jobs"
    reason, seconds = conn.execute(query).fetchone()
    assert reason == ("gave_up" if outcome == "failed" else None)
    if wait_seconds is not None:
        assert wait_seconds - 30 < seconds <= wait_seconds


def test_the_handler_with_progress_runs(page: Any) -> None:
    page.export.enqueue(orders=3)
    attempted = run_one(page.app)
    assert attempted is not None
    assert attempted.result == 3
