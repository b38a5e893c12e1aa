"""The code of docs/sqlalchemy.md and docs/asyncpg.md runs, and does what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faultline.testing import run_until_idle
from tests.adapters.effects import payments

DOCS = Path(__file__).parents[2] / "docs"
MakePage = Callable[[str], Any]


@pytest.fixture
def page_of(own_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePage]:
    monkeypatch.setenv("DATABASE_URL", own_url)
    made: list[Any] = []

    def make(name: str) -> Any:
        module: Any = ModuleType("page")
        monkeypatch.setitem(sys.modules, "page", module)
        made.append(module)
        for code in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL):
            exec(compile(code, name, "exec"), vars(module))  # noqa: S102
        return module

    yield make
    for module in made:
        module.app.close()


def test_the_code_on_sqlalchemy_pays_and_settles(page_of: MakePage, own_url: str) -> None:
    page = page_of("sqlalchemy.md")  # has enqueued a job for invoice 42
    page.charge_async.enqueue(invoice=42)
    page.settle.enqueue(invoice=42)
    ended = run_until_idle(page.app)
    assert [done.outcome for done in ended] == ["succeeded"] * 3
    assert ended[2].result == {"settled": 42}
    assert payments(own_url) == 3
    page.engine.dispose()


def test_the_code_on_asyncpg_pays_and_settles(page_of: MakePage, own_url: str) -> None:
    page = page_of("asyncpg.md")
    page.settle.enqueue(invoice=42)
    ended = run_until_idle(page.app)
    assert [(done.task, done.outcome) for done in ended] == [
        ("settle", "succeeded"),
        ("charge", "succeeded"),
    ]
    assert payments(own_url) == 1
