"""Fixtures: an example's modules, connected to a database of the test's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from faultline.testing import Databases, using

EXAMPLES = Path(__file__).parents[2] / "examples"

Example = Callable[[str, str], Any]


@pytest.fixture(scope="session")
def databases(server_url: str) -> Iterator[Databases]:
    made = Databases(server_url)
    yield made
    made.close()


@pytest.fixture
def example(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """Imports a module of an example, and connects its application to a database."""
    with ExitStack() as stack:

        def load(folder: str, name: str) -> Any:
            monkeypatch.syspath_prepend(str(EXAMPLES / folder))
            stack.callback(sys.modules.pop, name, None)
            module = importlib.import_module(name)
            if hasattr(module, "app"):
                url = databases.make()
                stack.callback(databases.drop, url)
                stack.enter_context(using(module.app, url))
            return module

        yield load
